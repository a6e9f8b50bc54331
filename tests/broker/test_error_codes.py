from __future__ import annotations

import inspect

import pytest

from catena import errors
from catena.broker.error_codes import code_of
from catena.wire.codes import Code

RETRIABLE = {Code.NOT_ENOUGH_REPLICAS, Code.REQUEST_TIMED_OUT, Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR}
ALL = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, errors.CatenaError) and kind is not errors.CatenaError
]


def make(kind: type[errors.CatenaError]) -> errors.CatenaError:
    error = kind.__new__(kind)
    assert isinstance(error, errors.CatenaError)
    return error


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_a_code(kind: type[errors.CatenaError]) -> None:
    assert code_of(make(kind)) not in (Code.NONE, Code.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("kind", [kind for kind in ALL if issubclass(kind, errors.RetryLater)])
def test_what_was_not_applied_is_sent_again_by_clients(kind: type[errors.CatenaError]) -> None:
    assert code_of(make(kind)) in RETRIABLE - {Code.REQUEST_TIMED_OUT}


@pytest.mark.parametrize("kind", [kind for kind in ALL if issubclass(kind, errors.Rejected)])
def test_what_is_wrong_is_not_sent_again_and_again(kind: type[errors.CatenaError]) -> None:
    assert code_of(make(kind)) not in RETRIABLE


def test_an_unknown_outcome_is_told_apart_from_a_failure() -> None:
    assert code_of(errors.OutcomeUnknown("")) == Code.REQUEST_TIMED_OUT


def test_what_waits_for_a_person_is_not_sent_again_and_again() -> None:
    assert code_of(errors.MetaBehind("")) not in RETRIABLE
