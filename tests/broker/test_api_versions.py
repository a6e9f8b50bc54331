from __future__ import annotations

from catena.broker.api_versions import api_versions
from catena.wire.apis import APIS
from catena.wire.codes import Code


def test_everything_in_the_table_is_told_and_nothing_else() -> None:
    told = {key.api_key: (key.min_version, key.max_version) for key in api_versions().api_keys}
    assert told.keys() == APIS.keys()
    assert told.pop(0) == (0, 13)  # old Produce is told of and refused, or librdkafka does not compress
    assert told == {api.key: (api.first, api.last) for api in APIS.values() if api.key}


def test_an_error_comes_with_the_versions_that_are_there() -> None:
    answer = api_versions(Code.UNSUPPORTED_VERSION)
    assert answer.error_code == Code.UNSUPPORTED_VERSION
    assert len(answer.api_keys) == len(APIS)
