"""The topics of a run: made before it, and asked for their offsets before and after, by commands on the stores."""

from __future__ import annotations

from typing import Any

from catena.errors import ConfigError
from catena.loadtest.orders import Bounds
from catena.loadtest.scenario import Scenario, Topic
from catena.loadtest.stack import Stack
from catena.runtime.tasks import map_bounded

AT_ONCE = 2


async def precreate(stack: Stack, scenario: Scenario) -> list[str]:
    """Make those that are not there; returns their names. ConfigError if one has another number of partitions."""
    there = {found["name"]: found["partitions"] for found in await stack.command("topic", "list")}
    for topic in scenario.topics:
        if there.get(topic.name, topic.partitions) != topic.partitions:
            raise ConfigError(
                f"topic {topic.name} is there with {there[topic.name]} partitions, and not with {topic.partitions}"
            )

    async def make(topic: Topic) -> str:
        await stack.command("topic", "create", topic.name, "--partitions", str(topic.partitions))
        return topic.name

    return await map_bounded(AT_ONCE, make, [topic for topic in scenario.topics if topic.name not in there])


async def look_at_bounds(stack: Stack, scenario: Scenario) -> dict[tuple[str, int], Bounds]:
    async def look(topic: Topic) -> dict[tuple[str, int], Bounds]:
        said: dict[str, Any] = await stack.command("topic", "describe", topic.name)
        return {(topic.name, each["partition"]): Bounds(each["start"], each["tail"]) for each in said["partitions"]}

    found: dict[tuple[str, int], Bounds] = {}
    for some in await map_bounded(AT_ONCE, look, scenario.topics):
        found |= some
    return found
