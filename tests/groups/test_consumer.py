"""The rules of ConsumerGroupHeartbeat, one by one."""

from __future__ import annotations

import pytest

from catena.groups.base import GroupError, GroupSettings, Persist
from tests.groups.consumer_world import Client, T, World, settle, topic_id


@pytest.fixture
def world() -> World:
    return World()


def test_a_first_member_gets_all_partitions_after_they_are_stored(world: World) -> None:
    assert world.state == "Empty"
    response = world.join("a")
    assert isinstance(world.effects[0], Persist)
    assert (response.error, response.member_id, response.member_epoch) == (GroupError.NONE, "a", 1)
    assert response.assignment == {T: [0, 1, 2, 3]}
    assert response.heartbeat_interval_ms == 5_000
    assert world.state == "Stable"


def test_a_member_without_an_id_is_given_one(world: World) -> None:
    assert world.join("").member_id == "fresh1"


def test_an_unchanged_heartbeat_stores_nothing_and_tells_no_assignment(world: World) -> None:
    world.join("a")
    response = world.send("a", 1)
    assert world.effects[0] != Persist()
    assert (response.error, response.member_epoch, response.assignment) == (GroupError.NONE, 1, None)


def test_a_full_request_is_told_the_assignment_again(world: World) -> None:
    world.join("a")
    response = world.send("a", 1, rebalance_timeout_ms=1000, topic_names=("t",), owned={T: [0, 1, 2, 3]})
    assert response.assignment == {T: [0, 1, 2, 3]}


def test_a_partition_is_given_on_only_when_its_owner_says_that_it_let_go(world: World) -> None:
    world.join("a")
    late = world.join("b")
    assert (late.member_epoch, late.assignment, late.heartbeat_interval_ms) == (2, {}, 1_000)
    assert world.state == "Reconciling"
    told = world.send("a", 1)
    assert (told.member_epoch, told.assignment) == (1, {T: [0, 1]})
    assert world.send("b", 2).assignment is None
    assert world.send("a", 1).assignment == {T: [0, 1]}  # again, since the answer before may be lost
    assert world.send("a", 1, owned={T: [0, 1, 2]}).member_epoch == 1
    assert world.send("b", 2).assignment is None
    acked = world.send("a", 1, owned={T: [0, 1]})
    assert (acked.member_epoch, acked.assignment) == (2, None)
    assert world.send("b", 2).assignment == {T: [2, 3]}
    assert world.state == "Stable"


def test_a_member_that_says_that_it_has_something_else_is_told_again(world: World) -> None:
    world.join("a")
    assert world.send("a", 1, owned={T: [0, 1, 2, 3]}).assignment is None
    assert world.send("a", 1, owned={T: [0]}).assignment == {T: [0, 1, 2, 3]}


def test_a_leaving_member_frees_its_partitions_at_once(world: World) -> None:
    a, b = world.two()
    left = world.send("b", -1)
    assert (left.error, left.member_id, left.member_epoch) == (GroupError.NONE, "b", -1)
    assert isinstance(world.effects[0], Persist)
    a.beat()
    assert len(a.owned) == 4
    assert b.beat().error is GroupError.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_after_its_session(world: World) -> None:
    a, b = world.two()
    world.wait(30.0)
    a.beat()
    world.wait(16.0)
    assert b.beat().error is GroupError.UNKNOWN_MEMBER_ID
    a.beat()
    assert len(a.owned) == 4


def test_a_member_that_does_not_let_go_in_its_rebalance_timeout_is_removed(world: World) -> None:
    a = Client(world, "a", rebalance_timeout_ms=10_000)
    Client(world, "b")
    world.send("a", a.epoch)
    world.wait(9.0)
    assert world.send("a", a.epoch).error is GroupError.NONE
    world.wait(2.0)
    assert world.send("a", a.epoch).error is GroupError.UNKNOWN_MEMBER_ID


def test_letting_go_in_time_ends_the_rebalance_timeout(world: World) -> None:
    a = Client(world, "a", rebalance_timeout_ms=10_000)
    b = Client(world, "b")
    settle(a, b)
    world.wait(20.0)
    assert a.beat().error is GroupError.NONE


def test_epochs_from_the_future_and_from_long_ago_are_fenced(world: World) -> None:
    a = Client(world, "a")
    b = Client(world, "b")
    settle(a, b)
    Client(world, "c")
    settle(a, b)
    assert world.send("a", a.epoch + 1).error is GroupError.FENCED_MEMBER_EPOCH
    assert world.send("a", 1, owned={}).error is GroupError.FENCED_MEMBER_EPOCH


def test_the_epoch_before_is_accepted_when_the_answer_may_have_been_lost(world: World) -> None:
    _, b = world.two()
    before = b.epoch
    world.send("a", -1)
    world.send("b", before)
    assert world.send("b", before).error is GroupError.FENCED_MEMBER_EPOCH
    assert world.send("b", before, owned={T: [9]}).error is GroupError.FENCED_MEMBER_EPOCH
    again = world.send(
        "b", before, owned={T: sorted(p for _, p in b.owned)}, topic_names=("t",), rebalance_timeout_ms=1000
    )
    assert (again.error, again.assignment) == (GroupError.NONE, {T: [0, 1, 2, 3]})


def test_a_member_that_joins_again_with_its_id_is_taken_back(world: World) -> None:
    a, _ = world.two()
    response = world.join("a")
    assert (response.error, response.member_epoch) == (GroupError.NONE, a.epoch)
    assert response.assignment == {T: sorted(p for _, p in a.owned)}


def test_unknown_members_and_instances_are_refused(world: World) -> None:
    world.join("a")
    assert world.send("ghost", 1).error is GroupError.UNKNOWN_MEMBER_ID
    assert world.send("ghost", -1).error is GroupError.UNKNOWN_MEMBER_ID
    assert world.send("a", 1, instance_id="i").error is GroupError.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_new_members() -> None:
    world = World(GroupSettings(max_members=1))
    world.join("a")
    assert world.join("b").error is GroupError.GROUP_MAX_SIZE_REACHED
    assert world.send("a", 1).error is GroupError.NONE


# Subscriptions


def test_a_changed_subscription_bumps_the_epoch_and_null_fields_do_not() -> None:
    world = World(t=2, u=2)
    a = Client(world, "a", "t")
    a.beat(topic_names=("u", "t"))
    assert (a.epoch, len(a.owned)) == (2, 4)
    a.beat(topic_names=("t", "u"))
    a.beat()
    assert a.epoch == 2


def test_topics_that_do_not_exist_are_waited_for(world: World) -> None:
    a = Client(world, "a", "later")
    assert a.owned == set()
    world.set_topics(t=4, later=3)
    assert isinstance(world.effects[0], Persist)
    a.beat()
    assert (a.epoch, a.owned) == (2, {(topic_id("later"), p) for p in range(3)})


def test_new_partitions_of_a_topic_are_assigned_and_other_topics_do_not_matter(world: World) -> None:
    a = Client(world, "a")
    world.set_topics(t=4, other=1)
    assert world.effects == []
    world.set_topics(t=5, other=1)
    a.beat()
    assert (a.epoch, len(a.owned)) == (2, 5)


def test_a_deleted_topic_is_taken_away(world: World) -> None:
    a = Client(world, "a")
    world.set_topics(u=1)
    a.beat()
    a.beat()
    assert (a.epoch, a.owned) == (2, set())


def test_topics_are_subscribed_to_by_expression_and_by_name_together() -> None:
    world = World(orders=1, orders_eu=2, users=1)
    a = Client(world, "a", "users", topic_regex="orders.*")
    assert len(a.owned) == 4
    world.set_topics(orders=1, orders_eu=2, users=1, orders_us=1)
    a.beat()
    assert len(a.owned) == 5
    a.beat(topic_regex="")
    a.beat()
    assert a.owned == {(topic_id("users"), 0)}


def test_a_bad_expression_is_refused_and_changes_nothing(world: World) -> None:
    refused = world.join("a", topic_regex="(")
    assert (refused.error, world.state) == (GroupError.INVALID_REGULAR_EXPRESSION, "Empty")
    assert refused.message


def test_members_with_other_topics_get_only_these() -> None:
    world = World(t=2, u=2)
    a, b = Client(world, "a", "t"), Client(world, "b", "u")
    settle(a, b)
    assert a.owned == {(topic_id("t"), 0), (topic_id("t"), 1)}
    assert b.owned == {(topic_id("u"), 0), (topic_id("u"), 1)}


def test_the_assignor_is_what_most_ask_for() -> None:
    world = World(t=2, u=2)
    names = ("t", "u")
    a, b = Client(world, "a", *names, assignor="range"), Client(world, "b", *names, assignor="range")
    settle(a, b)
    assert world.group.describe().assignor == "range"
    assert a.owned == {(topic_id("t"), 0), (topic_id("u"), 0)}


# Static members


def test_a_static_member_that_comes_back_gets_what_it_had_and_nobody_notices(world: World) -> None:
    a = Client(world, "a", instance_id="i")
    b = Client(world, "b")
    settle(a, b)
    epoch = world.group.epoch
    left = world.send("a", -2, instance_id="i")
    assert (left.error, left.member_epoch) == (GroupError.NONE, -2)
    assert b.beat().assignment is None
    back = Client(world, "a2", instance_id="i")
    assert (back.epoch, back.owned) == (epoch, a.owned)
    assert world.group.epoch == epoch
    assert world.send("a", epoch, instance_id="i").error is GroupError.FENCED_INSTANCE_ID
    assert world.send("a", -1, instance_id="i").error is GroupError.FENCED_INSTANCE_ID


def test_an_instance_id_is_taken_until_it_is_released(world: World) -> None:
    Client(world, "a", instance_id="i")
    assert world.join("a2", instance_id="i").error is GroupError.UNRELEASED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_removed(world: World) -> None:
    a = Client(world, "a", instance_id="i")
    b = Client(world, "b")
    settle(a, b)
    world.send("a", -2, instance_id="i")
    world.wait(40.0)
    b.beat()
    assert len(b.owned) == 2
    world.wait(10.0)
    b.beat()
    assert len(b.owned) == 4


def test_a_static_member_may_leave_for_good(world: World) -> None:
    Client(world, "a", instance_id="i")
    assert world.send("a", -1, instance_id="i").error is GroupError.NONE
    assert world.join("b", instance_id="i").error is GroupError.NONE


def test_what_a_static_member_was_to_give_up_is_free_when_it_leaves(world: World) -> None:
    a = Client(world, "a", instance_id="i")
    b = Client(world, "b")
    world.send("a", a.epoch, instance_id="i")
    world.send("a", -2, instance_id="i")
    b.beat()
    assert len(b.owned) == 2


def test_a_member_can_neither_take_nor_give_up_an_instance_id(world: World) -> None:
    Client(world, "a")
    Client(world, "b", instance_id="i")
    assert world.join("a", instance_id="j").error is GroupError.INVALID_REQUEST
    assert world.join("b").error is GroupError.INVALID_REQUEST


# Many members, and deleting


def test_many_joins_share_one_computation() -> None:
    world = World(GroupSettings(assignment_pause_per_member_s=0.1), t=8)
    clients = [Client(world, f"m{i}") for i in range(4)]
    assert (world.group.epoch, world.group.assignment_epoch, world.state) == (4, 1, "Assigning")
    assert [len(client.owned) for client in clients] == [8, 0, 0, 0]
    world.wait(0.1)
    assert world.group.assignment_epoch == 4
    assert isinstance(world.effects[0], Persist)
    settle(*clients)
    assert [len(client.owned) for client in clients] == [2, 2, 2, 2]


def test_an_empty_group_can_be_deleted(world: World) -> None:
    Client(world, "a")
    assert world.group.delete() is GroupError.NON_EMPTY_GROUP
    world.send("a", -1)
    assert world.group.is_empty
    assert world.group.next_deadline() is None
    assert world.group.delete() is GroupError.NONE
    assert world.group.delete() is GroupError.GROUP_ID_NOT_FOUND
    assert (world.state, world.group.is_empty) == ("Dead", False)
    assert world.join("a").error is GroupError.COORDINATOR_NOT_AVAILABLE


def test_members_are_described_with_what_they_have_and_should_have(world: World) -> None:
    Client(world, "a", rack_id="r", instance_id="i")
    Client(world, "b")
    view = world.group.describe()
    assert (view.group_epoch, view.assignment_epoch, view.assignor) == (2, 2, "uniform")
    first = view.members[0]
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 1)
    assert (first.topic_names, first.topic_regex) == (("t",), "")
    assert (first.assigned, first.target) == ({T: [0, 1, 2, 3]}, {T: [0, 1]})


# Failover


def test_a_stable_group_goes_on_after_a_failover(world: World) -> None:
    a, b = world.two()
    before = world.group.describe()
    world.failover()
    assert world.group.describe() == before
    assert a.beat().assignment is None
    assert b.beat().error is GroupError.NONE
    assert world.group.epoch == before.group_epoch
    world.wait(46.0)
    assert world.state == "Empty"


def test_a_revocation_under_way_goes_on_after_a_failover(world: World) -> None:
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    world.failover()
    assert b.beat().assignment is None
    a.beat()
    b.beat()
    assert len(a.owned) == len(b.owned) == 2


def test_topics_that_changed_during_a_failover_are_noticed(world: World) -> None:
    a = Client(world, "a")
    world.topics = World(t=6).topics
    world.failover()
    a.beat()
    assert len(a.owned) == 6


def test_a_target_that_was_not_computed_before_a_failover_is_computed_after_it() -> None:
    world = World(GroupSettings(assignment_pause_per_member_s=0.1))
    Client(world, "a")
    Client(world, "b")
    assert world.state == "Assigning"
    world.failover()
    world.wait(0.0)
    assert world.state == "Reconciling"


def test_a_group_that_is_too_large_to_store_is_stored_without_its_members() -> None:
    world = World(GroupSettings(max_snapshot_bytes=300))
    a = Client(world, "a")
    assert world.stored is not None
    assert len(world.stored) <= 300
    world.failover()
    assert a.beat().error is GroupError.UNKNOWN_MEMBER_ID
    assert world.join("a").member_epoch == 2
