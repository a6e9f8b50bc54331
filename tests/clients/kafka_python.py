"""The client kafka-python. While it is imported it reads its files in a way that Python 3.11 and 3.12 warn of."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.errors  # type: ignore[import-untyped]
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec  # type: ignore[import-untyped]
    from kafka.codec import has_snappy  # type: ignore[import-untyped]

__all__ = [
    "ConfigResource",
    "ConfigResourceType",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetSpec",
    "TopicPartition",
    "has_snappy",
    "kafka",
]
