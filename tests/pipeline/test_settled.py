from __future__ import annotations

from catena.pipeline.settled import Settled
from catena.types import TopicId, TopicPartition
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain

TP = TopicPartition("topic", TopicId("1" * 32), 0)


def tiered(chain: Chain, boundary: int, manifest: str) -> Chain:
    return chains.finish_tiering(chains.begin_tiering(chain, "job"), "job", 0, boundary, {"manifest": manifest})


def test_a_link_is_settled_until_it_or_the_start_changes() -> None:
    settled = Settled()
    chain = tiered(chains.initial("diskless"), 10, "m1")
    assert not settled.has(TP, chain)
    settled.note(TP, chain)
    assert settled.has(TP, chain)
    assert not settled.has(TP._replace(partition=1), chain)
    assert not settled.has(TP, chains.trim(chain, 5))
    assert not settled.has(TP, tiered(chain, 20, "m2"))


def test_where_nothing_is_tiered_there_is_nothing_to_know() -> None:
    settled = Settled()
    chain = chains.initial("diskless")
    settled.note(TP, chain)
    assert not settled.has(TP, chain)


def test_partitions_that_are_gone_are_forgotten() -> None:
    settled = Settled()
    chain = tiered(chains.initial("diskless"), 10, "m1")
    settled.note(TP, chain)
    settled.keep([])
    assert not settled.has(TP, chain)
