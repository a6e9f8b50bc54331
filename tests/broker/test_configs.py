"""Configs are shown, altered and refused as Kafka's tools expect; the docs say the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from catena.broker.base import TopicDefaults
from catena.testing.faults import Stall
from catena.virtual_log.topic_configs import CATALOGUE
from catena.wire.apis import APIS
from catena.wire.codes import Code
from catena.wire.messages.alter_configs import AlterableConfig as Replacement
from catena.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from catena.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from catena.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from catena.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.broker.world import BrokerNode, World

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
THROTTLED = "leader.replication.throttled.replicas"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "kafka.md"


async def describe(
    node: BrokerNode, kind: int, name: str, keys: list[str] | None = None, version: int = 4, more: bool = False
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        include_synonyms=more,
        include_documentation=more,
    )
    (result,) = (await node.ask(request, DescribeConfigsResponse, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def shown(node: BrokerNode, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    (config,) = (await describe(node, kind, name, [key], more=True)).configs
    return config


async def alter(
    node: BrokerNode, *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "t", only: bool = False
) -> tuple[int, str | None]:
    configs = [AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)], validate_only=only
    )
    (response,) = (await node.ask(request, IncrementalAlterConfigsResponse)).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response.error_code, response.error_message


async def stored(node: BrokerNode) -> dict[str, str]:
    return (await node.node.topics.get("t")).configs


class TestDescribe:
    async def test_a_topic_shows_all_its_configs(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", configs={"retention.ms": "5"})
        nothing: list[str] = []
        for keys in (None, nothing):
            for version in range(1, 5):
                result = await describe(node, TOPIC, "t", keys, version)
                assert (result.error_code, result.error_message) == (Code.NONE, None)
                assert [config.name for config in result.configs] == list(CATALOGUE)
                for config in result.configs:
                    own = config.name == "retention.ms"
                    assert config.value == ("5" if own else CATALOGUE[config.name].default)
                    assert config.config_source == (1 if own else 5)
                    assert (config.read_only, config.is_sensitive) == (False, False)
                    assert config.config_type == CATALOGUE[config.name].type
                    assert (config.synonyms, config.documentation) == ([], None)

    async def test_only_what_is_asked_for_is_shown_with_all_that_is_asked_for(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", configs={"retention.ms": "5"})
        result = await describe(node, TOPIC, "t", ["max.message.bytes", "no.such"])
        assert [config.name for config in result.configs] == ["max.message.bytes"]
        config = await shown(node, TOPIC, "t", "retention.ms")
        assert [(each.name, each.value, each.source) for each in config.synonyms] == [
            ("retention.ms", "5", 1),
            ("log.retention.ms", str(7 * 24 * 3600 * 1000), 5),
        ]
        assert "old" in (config.documentation or "")

    async def test_what_was_altered_on_another_node_is_shown_at_once(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await node.node.topics.create("t")
        await node.view.read("t")
        assert await alter(other, ("retention.ms", SET, "7")) == (Code.NONE, None)
        assert (await shown(node, TOPIC, "t", "retention.ms")).value == "7"

    async def test_a_broker_shows_what_is_true_of_it(self, world: World) -> None:
        node = await world.node(3, rack="r", defaults=TopicDefaults(auto_create=False, partitions=4))
        result = await describe(node, BROKER, "3")
        assert result.error_code == Code.NONE
        found = {config.name: (config.value, config.config_source) for config in result.configs}
        assert found["broker.id"] == ("3", 4)
        assert found["broker.rack"] == ("r", 4)
        assert found["advertised.listeners"] == ("main://main-host:9092", 4)
        assert found["auto.create.topics.enable"] == ("false", 4)
        assert found["num.partitions"] == ("4", 4)
        assert found["message.max.bytes"] == (CATALOGUE["max.message.bytes"].default, 5)
        assert all(config.read_only for config in result.configs)
        assert (await describe(node, BROKER, "")).configs == []

    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (TOPIC, "u", Code.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "a b", Code.INVALID_TOPIC_EXCEPTION),
            (BROKER, "9", Code.INVALID_REQUEST),
            (BROKER, "x", Code.INVALID_REQUEST),
            (8, "0", Code.INVALID_REQUEST),
            (32, "group", Code.INVALID_REQUEST),
        ],
    )
    async def test_what_has_no_configs_is_told_so(self, world: World, kind: int, name: str, code: Code) -> None:
        result = await describe(await world.node(), kind, name)
        assert (result.error_code, result.configs) == (code, [])
        assert result.error_message

    async def test_nothing_is_answered_with_nothing(self, world: World) -> None:
        node = await world.node()
        assert (await node.ask(DescribeConfigsRequest(), DescribeConfigsResponse)).results == []


class TestIncrementalAlter:
    async def test_configs_are_set_and_deleted_together(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", configs={"retention.ms": "5"})
        assert await alter(node, ("retention.ms", DELETE, None), ("segment.bytes", SET, " 100 ")) == (Code.NONE, None)
        assert await stored(node) == {"segment.bytes": "100"}
        cached = node.view.cached("t")
        assert cached is not None
        assert cached.configs == {"segment.bytes": "100"}

    async def test_lists_are_added_to_and_taken_from(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        for operation, value, policy in (
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact, delete", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
        ):
            assert await alter(node, ("cleanup.policy", operation, value)) == (Code.NONE, None)
            assert (await stored(node))["cleanup.policy"] == policy

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ([("no.such", SET, "1")], Code.INVALID_CONFIG),
            ([("no.such", DELETE, None)], Code.INVALID_CONFIG),
            ([("retention.ms", SET, "soon")], Code.INVALID_CONFIG),
            ([("retention.ms", SET, None)], Code.INVALID_CONFIG),
            ([("retention.ms", APPEND, "1")], Code.INVALID_CONFIG),
            ([("no.such", SUBTRACT, "1")], Code.INVALID_CONFIG),
            ([("cleanup.policy", APPEND, "shrink")], Code.INVALID_CONFIG),
            ([("cleanup.policy", 4, "delete")], Code.INVALID_REQUEST),
            ([("remote.storage.enable", SET, "true")], Code.INVALID_CONFIG),
            ([("segment.bytes", SET, "100"), ("segment.bytes", DELETE, None)], Code.INVALID_REQUEST),
            ([("segment.bytes", SET, "100"), ("retention.ms", SET, "soon")], Code.INVALID_CONFIG),
        ],
    )
    @pytest.mark.parametrize("only", [False, True])
    async def test_what_cannot_be_changes_nothing(
        self, world: World, changes: list[tuple[str, int, str | None]], code: Code, only: bool
    ) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        found, message = await alter(node, *changes, only=only)
        assert found == code
        assert message
        assert await stored(node) == {}

    async def test_what_is_only_validated_is_not_altered(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        assert await alter(node, ("retention.ms", SET, "5"), only=True) == (Code.NONE, None)
        assert await stored(node) == {}

    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (BROKER, "0", Code.INVALID_REQUEST),
            (8, "0", Code.INVALID_REQUEST),
            (TOPIC, "u", Code.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    async def test_only_topics_that_are_there_are_altered(self, world: World, kind: int, name: str, code: Code) -> None:
        found, message = await alter(await world.node(), ("retention.ms", SET, "1"), kind=kind, name=name)
        assert found == code
        assert message

    async def test_none_of_several_at_once_gets_lost(self, world: World) -> None:
        nodes = [await world.node() for _ in range(4)]
        await nodes[0].node.topics.create("t", configs={THROTTLED: "9:9"})
        changes = [(THROTTLED, APPEND, "0:0"), (THROTTLED, APPEND, "1:1"), (THROTTLED, SUBTRACT, "9:9")]
        stall = nodes[0].faults.at("put topic", Stall())
        first = asyncio.ensure_future(alter(nodes[0], (THROTTLED, APPEND, "2:2")))
        await stall.reached.wait()
        for node, change in zip(nodes[1:], changes, strict=True):
            assert await alter(node, change) == (Code.NONE, None)
        stall.let_go()
        assert await first == (Code.NONE, None)
        assert (await stored(nodes[0]))[THROTTLED] == "0:0,1:1,2:2"

    async def test_a_resource_that_stands_twice_is_refused(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        config = AlterableConfig(name="retention.ms", config_operation=SET, value="1")
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource, resource])
        answer = await node.ask(request, IncrementalAlterConfigsResponse)
        assert [each.error_code for each in answer.responses] == [Code.INVALID_REQUEST] * 2
        assert await stored(node) == {}


class TestAlter:
    async def replace(self, node: BrokerNode, only: bool = False, **configs: str | None) -> tuple[int, str | None]:
        replacements = [Replacement(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        resource = ReplacedResource(resource_type=TOPIC, resource_name="t", configs=replacements)
        request = AlterConfigsRequest(resources=[resource], validate_only=only)
        (response,) = (await node.ask(request, AlterConfigsResponse)).responses
        return response.error_code, response.error_message

    async def test_what_is_not_named_goes_back_to_its_default(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", configs={"retention.ms": "5", "segment.bytes": "100"})
        assert await self.replace(node, only=True, retention_ms="6") == (Code.NONE, None)
        assert await stored(node) == {"retention.ms": "5", "segment.bytes": "100"}
        assert await self.replace(node, retention_ms="6", segment_ms="7") == (Code.NONE, None)
        assert await stored(node) == {"retention.ms": "6", "segment.ms": "7"}
        assert await self.replace(node) == (Code.NONE, None)
        assert await stored(node) == {}

    async def test_what_others_have_just_set_goes_back_too(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await node.node.topics.create("t")
        stall = node.faults.at("put topic", Stall())
        replacing = asyncio.ensure_future(self.replace(node, retention_ms="6"))
        await stall.reached.wait()
        assert await alter(other, ("flush.ms", SET, "7")) == (Code.NONE, None)
        stall.let_go()
        assert await replacing == (Code.NONE, None)
        assert await stored(node) == {"retention.ms": "6"}

    async def test_what_cannot_be_changes_nothing(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", configs={"segment.bytes": "100"})
        for configs in ({"retention_ms": "soon"}, {"retention_ms": None}, {"no_such": "1"}):
            code, message = await self.replace(node, **configs)
            assert code == Code.INVALID_CONFIG
            assert message
        assert await stored(node) == {"segment.bytes": "100"}


class TestDocs:
    def rows(self, heading: str) -> dict[str, list[str]]:
        """The rows of the table below a heading, by what stands in their first column."""
        section = DOCS.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
        cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
        return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in cells[2:]}

    def test_every_api_is_in_the_docs_with_its_versions(self) -> None:
        documented = {name: row[0] for name, row in self.rows("APIs").items()}
        assert documented == {api.name: f"{api.first}-{api.last}" for api in APIS.values()}

    def test_every_topic_config_is_in_the_docs_with_its_default(self) -> None:
        documented = {name: (row[0], row[1].strip("`")) for name, row in self.rows("Topic configs").items()}
        words = {"ACTS": "obeyed", "HOLDS": "holds", "ONLY": "one value"}
        assert documented == {config.name: (words[config.kept.name], config.default) for config in CATALOGUE.values()}

    async def test_every_broker_config_is_in_the_docs(self, world: World) -> None:
        node = await world.node(0)
        result = await describe(node, BROKER, "0")
        assert sorted(self.rows("Broker configs")) == [config.name for config in result.configs]
