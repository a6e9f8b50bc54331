"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: of topics, which can be changed, and of brokers, which can't.

What a topic config means, and which values are refused, is said once, in `catena.virtual_log.topic_configs`. A
broker shows the few settings that have a name in Kafka and are true here; they come from its settings file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar, cast

from catena.broker.base import Client, TopicDefaults
from catena.broker.handling import Fault, Refused, fault_of
from catena.cluster.membership import Membership
from catena.errors import CatenaError
from catena.runtime.tasks import map_bounded
from catena.virtual_log import topic_configs
from catena.virtual_log.topic_configs import CATALOGUE, ConfigType
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import Topics
from catena.wire.codes import Code
from catena.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from catena.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from catena.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from catena.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from catena.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from catena.wire.requests import Request

TOPIC = 2
BROKER = 4
RESOURCES = {0: "unknown", 8: "broker logger", 16: "client metrics", 32: "group"}

TOPIC_CONFIG = 1
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5

SET, DELETE, APPEND, SUBTRACT = range(4)
AT_ONCE = 32

LOG_DIR = "catena"
"""Kafka's tools want the name of a folder; the records are in the object store, for all brokers the same."""

BROKER_NAMES: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
}
"""What Kafka calls the default of a topic config, which it lets brokers set."""

Asked = TypeVar("Asked", DescribeConfigsResource, ReplacedResource, AlterConfigsResource)


class ShownConfig(NamedTuple):
    name: str
    value: str
    source: int
    type: ConfigType
    doc: str
    is_read_only: bool
    synonyms: Sequence[tuple[str, str, int]]


def topic_configs_of(configs: Mapping[str, str]) -> list[ShownConfig]:
    """All configs of a topic for which these were set."""
    shown = []
    for config in CATALOGUE.values():
        synonyms = [(BROKER_NAMES.get(config.name, config.name), config.default, DEFAULT_CONFIG)]
        if (value := configs.get(config.name)) is not None:
            synonyms.insert(0, (config.name, value, TOPIC_CONFIG))
        _, current, source = synonyms[0]
        doc = f"{config.doc} In Catena: {config.kept.value}."
        shown.append(ShownConfig(config.name, current, source, config.type, doc, False, synonyms))
    return shown


class Configs:
    def __init__(self, membership: Membership, topics: Topics, view: TopicView, defaults: TopicDefaults) -> None:
        self._membership = membership
        self._topics = topics
        self._view = view
        self._defaults = defaults

    async def describe_configs(self, request: Request, _client: Client) -> DescribeConfigsResponse:
        body = cast(DescribeConfigsRequest, request.body)

        async def describe(asked: DescribeConfigsResource) -> DescribeConfigsResult:
            result = DescribeConfigsResult(
                error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
            )
            try:
                shown = await self._find(asked)
            except (Refused, CatenaError) as error:
                result.error_code, result.error_message = fault_of(error)
            else:
                # None asked for are all asked for, as in Kafka.
                keys = asked.configuration_keys
                shown = [config for config in shown if not keys or config.name in keys]
                result.configs = [_shown(config, body) for config in shown]
            return result

        return DescribeConfigsResponse(results=await map_bounded(AT_ONCE, describe, body.resources))

    async def alter_configs(self, request: Request, _client: Client) -> AlterConfigsResponse:
        """What a resource names is set, and everything else goes back to its default."""
        body = cast(AlterConfigsRequest, request.body)

        def change(asked: ReplacedResource, configs: Mapping[str, str]) -> Mapping[str, str | None]:
            _check_once(config.name for config in asked.configs)
            return dict.fromkeys(name for name in configs if name in CATALOGUE) | {
                config.name: _value(config.name, config.value) for config in asked.configs
            }

        def answer(asked: ReplacedResource, fault: Fault | None) -> AlterConfigsResourceResponse:
            code, message = fault or (Code.NONE, None)
            return AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )

        faults = await self._alter_all(body.resources, change, body.validate_only)
        return AlterConfigsResponse(responses=list(map(answer, body.resources, faults)))

    async def incremental_alter_configs(self, request: Request, _client: Client) -> IncrementalAlterConfigsResponse:
        body = cast(IncrementalAlterConfigsRequest, request.body)

        def change(asked: AlterConfigsResource, configs: Mapping[str, str]) -> Mapping[str, str | None]:
            _check_once(config.name for config in asked.configs)
            return {config.name: _altered(config, configs) for config in asked.configs}

        def answer(asked: AlterConfigsResource, fault: Fault | None) -> IncrementalResourceResponse:
            code, message = fault or (Code.NONE, None)
            return IncrementalResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )

        faults = await self._alter_all(body.resources, change, body.validate_only)
        return IncrementalAlterConfigsResponse(responses=list(map(answer, body.resources, faults)))

    async def _alter_all(
        self,
        resources: Sequence[Asked],
        change: Callable[[Asked, Mapping[str, str]], Mapping[str, str | None]],
        validate_only: bool,
    ) -> list[Fault | None]:
        """Alter each; None: it was done."""
        times = Counter((asked.resource_type, asked.resource_name) for asked in resources)

        async def alter(asked: Asked) -> Fault | None:
            try:
                if times[asked.resource_type, asked.resource_name] > 1:
                    raise Refused(Code.INVALID_REQUEST, f"{asked.resource_name!r} stands twice in the request")
                await self._alter(asked, change, validate_only)
            except (Refused, CatenaError) as error:
                return fault_of(error)
            return None

        return await map_bounded(AT_ONCE, alter, resources)

    async def _alter(
        self,
        asked: Asked,
        change: Callable[[Asked, Mapping[str, str]], Mapping[str, str | None]],
        validate_only: bool,
    ) -> None:
        if asked.resource_type == BROKER:
            raise Refused(
                Code.INVALID_REQUEST, "the configs of a broker are set in its settings file, and can't be altered here"
            )
        if asked.resource_type != TOPIC:
            raise _no_resource(asked.resource_type)
        if validate_only:
            configs = (await self._view.read(asked.resource_name)).configs
            topic_configs.altered(configs, change(asked, configs))
            return
        # What it makes of a list depends on the list, and others may alter it at the same time.
        await self._topics.alter_configs(asked.resource_name, partial(change, asked))
        try:
            await self._view.read(asked.resource_name)
        except CatenaError:
            pass  # it was altered; this node hears of it with its next scan

    async def _find(self, asked: DescribeConfigsResource) -> list[ShownConfig]:
        if asked.resource_type == TOPIC:
            # Read anew: whoever altered it on another node expects to see it here.
            return topic_configs_of((await self._view.read(asked.resource_name)).configs)
        if asked.resource_type == BROKER:
            return self._broker(asked.resource_name)
        raise _no_resource(asked.resource_type)

    def _broker(self, name: str) -> list[ShownConfig]:
        if name == "":
            return []  # defaults of all brokers, set at run time: there can be none
        if name != str(self._membership.node_id):
            raise Refused(
                Code.INVALID_REQUEST, f"this is broker {self._membership.node_id}, not {name!r}: ask that one"
            )
        node, defaults = self._membership.record, self._defaults
        listeners = ",".join(f"{listener}://{address}" for listener, address in node.listeners.items())
        standard = TopicDefaults()

        def setting(name: str, type_: ConfigType, value: object, default: object, doc: str) -> ShownConfig:
            source = DEFAULT_CONFIG if value == default else STATIC_BROKER_CONFIG
            text = str(value).lower() if type_ is ConfigType.BOOLEAN else str(value)
            return ShownConfig(name, text, source, type_, doc, True, [(name, text, source)])

        shown = [
            setting("advertised.listeners", ConfigType.STRING, listeners, None, "Where clients reach this broker."),
            setting(
                "auto.create.topics.enable", ConfigType.BOOLEAN, defaults.auto_create, standard.auto_create,
                "Whether a topic that a client asks for is created.",
            ),
            setting("broker.id", ConfigType.INT, node.node_id, None, "The id of this node."),
            setting("broker.rack", ConfigType.STRING, node.rack or "", "", "Where this node is."),
            setting(
                "default.replication.factor", ConfigType.INT, 1, 1,
                "Copies are made by the object store: a partition has one broker that clients talk to.",
            ),
            setting("delete.topic.enable", ConfigType.BOOLEAN, True, True, "Topics can be deleted."),
            setting("log.dirs", ConfigType.STRING, LOG_DIR, LOG_DIR, "A name for the object store, no folder."),
            setting("node.id", ConfigType.INT, node.node_id, None, "The id of this node."),
            setting(
                "num.partitions", ConfigType.INT, defaults.partitions, standard.partitions,
                "How many partitions a topic has if nobody says.",
            ),
        ]  # fmt: skip
        for topic_name, broker_name in BROKER_NAMES.items():
            config = CATALOGUE[topic_name]
            doc = f"What topics have where {topic_name} is not set."
            shown.append(setting(broker_name, config.type, config.default, config.default, doc))
        return sorted(shown)


def _shown(config: ShownConfig, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = config.synonyms if body.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.source,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=config.type,
        documentation=config.doc if body.include_documentation else None,
    )


def _altered(config: AlterableConfig, configs: Mapping[str, str]) -> str | None:
    """What one operation makes of a config; None: its default."""
    if config.config_operation == DELETE:
        return None
    value = _value(config.name, config.value)
    if config.config_operation == SET:
        return value
    if config.config_operation not in (APPEND, SUBTRACT):
        raise Refused(Code.INVALID_REQUEST, f"there is no config operation {config.config_operation}")
    known = CATALOGUE.get(config.name)
    if known is None or known.type is not ConfigType.LIST:
        raise Refused(Code.INVALID_CONFIG, f"topic config {config.name!r} is no list: it can be set and deleted only")
    current = _words(configs.get(config.name, known.default))
    given = _words(value)
    if config.config_operation == APPEND:
        return ",".join([*current, *(word for word in given if word not in current)])
    return ",".join(word for word in current if word not in given)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _value(name: str, value: str | None) -> str:
    if value is None:
        raise Refused(Code.INVALID_CONFIG, f"topic config {name!r} has no value")
    return value


def _check_once(names: Iterable[str]) -> None:
    seen: dict[str, None] = {}
    for name in names:
        if name in seen:
            raise Refused(Code.INVALID_REQUEST, f"config {name!r} stands twice in the request")
        seen[name] = None


def _no_resource(resource_type: int) -> Refused:
    kind = RESOURCES.get(resource_type, f"type {resource_type}")
    return Refused(Code.INVALID_REQUEST, f"topics and brokers have configs here, and resources of {kind} have none")
