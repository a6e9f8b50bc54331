"""Membership: agreement on protocols, the leader, static members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catena.groups.classic_roster import Member, Roster
from catena.groups.classic_values import Protocol


def member(member_id: str, *names: str, instance_id: str | None = None) -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id="",
        client_host="",
        session_timeout_s=10.0,
        rebalance_timeout_s=20.0,
        protocols=tuple(Protocol(name, b"") for name in names),
    )


def test_a_protocol_named_twice_counts_once() -> None:
    roster = Roster()
    roster.add(member("a", "p", "p"), "consumer")
    roster.add(member("b", "p"), "consumer")
    assert roster.agrees("consumer", ["p"])
    roster.remove("a")
    assert roster.agrees("consumer", ["p"])


def test_the_leader_stays_if_it_has_joined_and_else_the_first_who_has_leads() -> None:
    roster = Roster()
    for name in "abc":
        roster.add(member(name, "p"), "consumer")
    assert roster.elect_joined_leader({"a", "c"}.__contains__)
    assert roster.leader == "a"
    assert roster.elect_joined_leader({"c", "b"}.__contains__)
    assert roster.leader == "b"
    assert not roster.elect_joined_leader(lambda _: False)


def test_renaming_keeps_the_lead_and_the_instance() -> None:
    roster = Roster()
    roster.add(member("a", "p", instance_id="i"), "consumer")
    roster.rename("a", "b")
    assert (roster.leader, roster.statics, list(roster.members)) == ("b", {"i": "b"}, ["b"])


@given(st.lists(st.lists(st.sampled_from("pqrs"), min_size=1, max_size=4, unique=True), min_size=1, max_size=8))
def test_the_selected_protocol_is_supported_by_all(wishes: list[list[str]]) -> None:
    roster = Roster()
    let_in = []
    for i, names in enumerate(wishes):
        if roster.agrees("consumer", names):
            roster.add(member(str(i), *names), "consumer")
            let_in.append(set(names))
    common = set.intersection(*let_in)
    assert common
    assert roster.select_protocol() in common
