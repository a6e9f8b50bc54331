"""Which topics a classic consumer subscribes to, read from the metadata of its JoinGroup.

The group protocol treats this metadata as opaque; two rules have to look inside: OffsetDelete refuses topics that are
subscribed to, and a static member that comes back is compared with what it was. Layout (version 0 and later begin
alike): int16 version, int32 count, then for each topic int16 length and UTF-8 bytes.
"""

from __future__ import annotations

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None when these are not the bytes of a consumer's subscription."""
    if len(metadata) < 6:
        return None
    version, count = struct.unpack_from(">hi", metadata)
    if version < 0 or not 0 <= count <= (len(metadata) - 6) // 2:
        return None
    topics = set()
    at = 6
    for _ in range(count):
        if at + 2 > len(metadata):
            return None
        (length,) = struct.unpack_from(">h", metadata, at)
        at += 2
        if length < 0 or at + length > len(metadata):
            return None
        try:
            topics.add(metadata[at : at + length].decode())
        except UnicodeDecodeError:
            return None
        at += length
    return frozenset(topics)
