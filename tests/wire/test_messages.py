"""Every message of every advertised version against kio: what one writes the other reads, and their bytes are equal."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catena.wire.apis import APIS
from catena.wire.fields import fields_of
from catena.wire.schema import Message
from tests.wire import oracle
from tests.wire.messages import CASES, Case, messages

each_case = pytest.mark.parametrize("case", CASES, ids=str)


def test_no_message_is_left_out() -> None:
    covered = {(case.api.key, case.version, case.message) for case in CASES}
    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            assert {(api.key, version, api.request), (api.key, version, api.response)} <= covered


@each_case
def test_has_the_fields_of_kio_in_their_order(case: Case) -> None:
    same_fields(case, case.message, oracle.entity_type(case))


def same_fields(case: Case, ours: type[Message], kio_type: Any) -> None:
    fields = fields_of(ours, case.version)
    kio_fields = oracle.fields(kio_type)
    assert [field.name for field in fields] == [field.name for field in kio_fields]
    for field, theirs in zip(fields, kio_fields, strict=True):
        where = f"{ours.__name__}.{field.name}"
        assert (field.tag, field.is_array) == (theirs.tag, theirs.is_array), where
        # Null is what a tagged field is when it is not there; kio has no other way to say so.
        assert field.is_nullable == theirs.is_nullable or field.tag is not None, where
        assert (field.nested is None) == (theirs.nested is None), where
        if field.nested is not None:
            same_fields(case, field.nested, theirs.nested)


@each_case
def test_defaults_are_those_of_kio(case: Case) -> None:
    same_defaults(case, case.message, oracle.entity_type(case))


def same_defaults(case: Case, ours: type[Message], kio_type: Any) -> None:
    """kio has a default only where Kafka's schema names one."""
    expected = oracle.entity(kio_type, ours())
    for field in dataclasses.fields(kio_type):
        if field.default is not dataclasses.MISSING:
            assert getattr(expected, field.name) == field.default, f"{ours.__name__}.{field.name}"
    for mine, theirs in zip(fields_of(ours, case.version), oracle.fields(kio_type), strict=True):
        if mine.nested is not None:
            same_defaults(case, mine.nested, theirs.nested)


@each_case
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_agrees_with_kio(case: Case, data: st.DataObject) -> None:
    agrees_with_kio(case, data.draw(messages(case.message, case.version)))


@each_case
def test_defaults_agree_with_kio(case: Case) -> None:
    agrees_with_kio(case, case.message())


def agrees_with_kio(case: Case, message: Message) -> None:
    kio_type = oracle.entity_type(case)
    expected = oracle.entity(kio_type, message)
    ours = case.write(message)
    assert oracle.read(kio_type, ours) == (expected, len(ours))
    theirs = oracle.write(expected)
    assert case.read(theirs) == (message, len(theirs))
    assert ours == theirs
