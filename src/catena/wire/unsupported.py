"""Requests that Kafka knows and Catena does not answer, and how to refuse them.

Clients do not send what ApiVersions does not tell of. One that does so all the same is told in the response of that
very request, whose layout has to be known: so this table has the responses that have an error code of their own. Where
only their items have one (CreateAcls, TxnOffsetCommit), an empty answer would look like success; then, and for keys and
versions that nobody knows, the answer is an error code and nothing else. It is what all of the oldest responses begin
with, none ends with it, and so nobody takes it for success; and the connection goes on.

The error is UNSUPPORTED_VERSION, or what Kafka says where security is switched off.
"""

from __future__ import annotations

from typing import NamedTuple

from catena.wire.apis import NEVER, Api
from catena.wire.codes import Code
from catena.wire.messages.refusals import (
    AlterPartitionReassignments,
    ChangeDelegationToken,
    CreateDelegationToken,
    DescribeDelegationToken,
    DescribeQuorum,
    EndTxn,
    ErrorOnly,
    Explained,
    ExplainedList,
    GetTelemetrySubscriptions,
    Listed,
    ListTransactions,
    SaslAuthenticate,
    SaslHandshake,
    ShareAcknowledge,
    ShareFetch,
    ShareGroupHeartbeat,
    StreamsGroupHeartbeat,
    Throttled,
    UpdateFeatures,
)
from catena.wire.schema import Message


class Unsupported(NamedTuple):
    name: str
    api: Api
    """Of its versions those whose response has an error code of its own; what is in the request does not matter."""
    answer: Message


NO_ACLS = ExplainedList(error_code=Code.SECURITY_DISABLED, error_message="there are no ACLs: all may do everything")


def _unsupported(name: str, key: int, first: int, last: int, flexible: int, answer: Message) -> Unsupported:
    return Unsupported(name, Api(key, Message, type(answer), first, last, flexible), answer)


def unknown(key: int) -> Unsupported:
    """In version 0, whatever was asked for: without tags in the header."""
    return _unsupported("", key, 0, 0, NEVER, ErrorOnly())


UNSUPPORTED = {
    each.api.key: each
    for each in (
        _unsupported("SaslHandshake", 17, 0, 1, NEVER, SaslHandshake()),
        _unsupported("AddPartitionsToTxn", 24, 4, 5, 3, Listed()),
        _unsupported("AddOffsetsToTxn", 25, 0, 4, 3, Throttled()),
        _unsupported("EndTxn", 26, 0, 5, 3, EndTxn()),
        _unsupported("DescribeAcls", 29, 1, 3, 2, NO_ACLS),
        _unsupported("SaslAuthenticate", 36, 0, 2, 2, SaslAuthenticate()),
        _unsupported("CreateDelegationToken", 38, 1, 3, 2, CreateDelegationToken()),
        _unsupported("RenewDelegationToken", 39, 1, 2, 2, ChangeDelegationToken()),
        _unsupported("ExpireDelegationToken", 40, 1, 2, 2, ChangeDelegationToken()),
        _unsupported("DescribeDelegationToken", 41, 1, 3, 2, DescribeDelegationToken()),
        _unsupported("ElectLeaders", 43, 1, 2, 2, Listed()),
        _unsupported("AlterPartitionReassignments", 45, 0, 1, 0, AlterPartitionReassignments()),
        _unsupported("ListPartitionReassignments", 46, 0, 0, 0, ExplainedList()),
        _unsupported("DescribeClientQuotas", 48, 0, 1, 1, ExplainedList()),
        _unsupported("DescribeUserScramCredentials", 50, 0, 0, 0, ExplainedList()),
        _unsupported("DescribeQuorum", 55, 0, 2, 0, DescribeQuorum()),
        _unsupported("UpdateFeatures", 57, 0, 2, 0, UpdateFeatures()),
        _unsupported("UnregisterBroker", 64, 0, 0, 0, Explained()),
        _unsupported("ListTransactions", 66, 0, 2, 0, ListTransactions()),
        _unsupported("GetTelemetrySubscriptions", 71, 0, 0, 0, GetTelemetrySubscriptions()),
        _unsupported("PushTelemetry", 72, 0, 0, 0, Throttled()),
        _unsupported("ListConfigResources", 74, 0, 1, 0, Listed()),
        _unsupported("ShareGroupHeartbeat", 76, 1, 1, 0, ShareGroupHeartbeat()),
        _unsupported("ShareFetch", 78, 1, 2, 0, ShareFetch()),
        _unsupported("ShareAcknowledge", 79, 1, 2, 0, ShareAcknowledge()),
        _unsupported("AddRaftVoter", 80, 0, 1, 0, Explained()),
        _unsupported("RemoveRaftVoter", 81, 0, 0, 0, Explained()),
        _unsupported("StreamsGroupHeartbeat", 88, 0, 0, 0, StreamsGroupHeartbeat()),
        _unsupported("AlterShareGroupOffsets", 91, 0, 0, 0, ExplainedList()),
        _unsupported("DeleteShareGroupOffsets", 92, 0, 0, 0, ExplainedList()),
    )
}
