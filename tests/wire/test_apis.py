from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

from catena.wire.apis import API_VERSIONS, APIS, NEVER
from catena.wire.codes import Code
from tests.wire import oracle
from tests.wire.messages import Case


def test_names_and_versions_are_those_of_kio() -> None:
    for key, api in APIS.items():
        name = api_key_map[key]
        assert api.key == key
        assert api.name.lower() == name.replace("_", "")
        assert (api.first, api.last) == (min(schema_name_map[name]), max(schema_name_map[name])), name


def test_flexible_versions_are_those_of_kio() -> None:
    for api in APIS.values():
        for message in (api.request, api.response):
            for version in range(api.first, api.last + 1):
                case = Case(api, version, message)
                assert oracle.entity_type(case).__flexible__ == case.flexible == api.is_flexible(version), str(case)
        assert api.flexible <= api.last or api.flexible == NEVER


def test_one_range_is_advertised_wider_than_it_is() -> None:
    assert {api.name: api.advertised_first for api in APIS.values() if api.advertised_first is not None} == {
        "Produce": 0
    }


def test_api_versions() -> None:
    assert API_VERSIONS.name == "ApiVersions"
    assert API_VERSIONS.first == 0


def test_codes_are_those_of_kafka() -> None:
    kio = {code.name.upper(): code.value for code in ErrorCode}
    renamed = {name: code.value for name, code in Code.__members__.items() if kio.get(name) != code.value}
    assert {code.value for code in Code} == set(kio.values())
    assert renamed == {}
