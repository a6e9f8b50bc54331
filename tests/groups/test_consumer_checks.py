"""Requests that are wrong whatever the group is."""

from __future__ import annotations

import pytest

from catena.groups.base import GroupError
from catena.groups.consumer_checks import Refused, check_epoch
from catena.groups.consumer_member import ConsumerMember
from tests.groups.consumer_world import T, World

WRONG: list[tuple[str, int, dict[str, object]]] = [
    ("a", 0, {"rebalance_timeout_ms": -1}),
    ("a", 0, {"owned": None}),
    ("a", 0, {"owned": {T: [0]}}),
    ("a", 0, {"topic_names": None}),
    ("a", 0, {"instance_id": ""}),
    ("a", 0, {"rack_id": ""}),
    ("", 1, {}),
    ("", -1, {}),
    ("a", -2, {}),
    ("a", -3, {}),
]


@pytest.mark.parametrize(("member_id", "epoch", "fields"), WRONG)
def test_wrong_requests_are_refused_with_a_message(member_id: str, epoch: int, fields: dict[str, object]) -> None:
    world = World()
    if epoch == 0:
        response = world.join(member_id, **fields)
    else:
        world.join("a")
        response = world.send(member_id, epoch, **fields)
    assert response.error is GroupError.INVALID_REQUEST
    assert response.message


def test_an_empty_list_of_topics_is_a_subscription() -> None:
    assert World().join("a", topic_names=()).assignment == {}


def test_an_unknown_assignor_is_refused_and_the_known_ones_are_named() -> None:
    response = World().join("a", assignor="magic")
    assert response.error is GroupError.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in (response.message or "")


def test_epochs() -> None:
    member = ConsumerMember(member_id="a", epoch=5, previous_epoch=4, assigned=frozenset({(T, 0)}))
    check_epoch(member, 5, None)
    check_epoch(member, 4, frozenset())
    check_epoch(member, 4, frozenset({(T, 0)}))
    for received, owned in ((6, frozenset()), (3, frozenset()), (4, None), (4, frozenset({(T, 1)}))):
        with pytest.raises(Refused):
            check_epoch(member, received, owned)
