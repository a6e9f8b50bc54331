"""The chain as a pure value: its invariants hold after any sequence of changes."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from catena.errors import OffsetOutOfRange, StaleView
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import REMEMBERED_NONCES, TIERED, Chain, Link

KINDS = st.sampled_from(["diskless", "memory"])


class ChainMachine(RuleBasedStateMachine):
    """A chain and the log it describes: a tail that grows while the last link is open."""

    @initialize(kind=KINDS)
    def begin(self, kind: str) -> None:
        self.chain = chains.initial(kind)
        self.tail = 0
        self.given_out = {1}
        self.owners: dict[int, int] = {}
        """The epoch that each offset was appended with; the tiered prefix aside, it stays there."""
        self.changes = 0
        self.jobs: list[tuple[str, int]] = []
        """Those that began to tier, and where the chain began then."""
        self.deleted = False

    def change(self, new: Chain) -> None:
        old = self.chain
        assert new.next_epoch >= old.next_epoch
        assert new.start >= old.start
        assert new.boundary >= old.boundary
        self.changes += 1
        self.chain = chains.signed(new, f"nonce {self.changes}")
        assert self.chain.revision == old.revision + 1

    def give_out(self, epoch: int) -> None:
        assert epoch not in self.given_out, "an epoch was used twice"
        self.given_out.add(epoch)

    @rule(count=st.integers(1, 20))
    def append(self, count: int) -> None:
        # A link is sealed for good once an intent stands; whether it is already is not the chain's to know.
        if self.chain.last.is_open and self.chain.intent is None:
            self.owners |= dict.fromkeys(range(self.tail, self.tail + count), self.chain.last.epoch)
            self.tail += count

    @rule(kind=KINDS | st.none())
    def intend(self, kind: str | None) -> None:
        if self.chain.intent is not None:
            with pytest.raises(StaleView):
                chains.intend(self.chain, "mine", kind)
            return
        intended = chains.intend(self.chain, f"intent {self.changes}", kind)
        assert intended.intent is not None
        self.change(intended)
        self.give_out(intended.intent.epoch)

    @rule()
    def finish(self) -> None:
        with pytest.raises(StaleView):
            chains.finish(self.chain, "never intended", self.tail)
        intent = self.chain.intent
        if intent is None:
            return
        self.change(chains.finish(self.chain, intent.nonce, self.tail))
        assert self.chain.intent is None
        if intent.kind is None:
            assert self.chain.last.end == self.tail
        else:
            assert self.chain.last == Link(intent.kind, intent.epoch, self.tail, None, {})

    @rule()
    def begin_tiering(self) -> None:
        if self.deleted:
            with pytest.raises(StaleView):
                chains.begin_tiering(self.chain, "j")
            return
        self.jobs.append((f"job {self.changes}", self.chain.links[0].base))
        self.change(chains.begin_tiering(self.chain, self.jobs[-1][0]))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def finish_tiering(self, data: st.DataObject) -> None:
        job, base = data.draw(st.sampled_from(self.jobs))
        first = self.chain.links[0]
        boundary = data.draw(st.integers(0, self.tail))
        if self.deleted or job != self.chain.tiering or base < first.base or boundary < self.chain.boundary:
            with pytest.raises(StaleView):
                chains.finish_tiering(self.chain, job, base, boundary, {})
            return
        base = data.draw(st.sampled_from([base, max(base, min(self.chain.start, boundary))]))
        self.change(chains.finish_tiering(self.chain, job, base, boundary, {"manifest": boundary}))
        link = self.chain.links[0]
        assert link == self.chain.tiered
        assert (link.kind, link.base, link.params) == (TIERED, base, {"manifest": boundary})
        assert self.chain.boundary == boundary
        self.give_out(link.epoch)
        with pytest.raises(StaleView):
            chains.finish_tiering(self.chain, job, base, boundary, {})

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.tail))
        trimmed = chains.trim(self.chain, offset)
        if offset <= self.chain.start:
            assert trimmed is self.chain
        else:
            self.change(trimmed)
            assert self.chain.start == offset
            assert len(self.chain.links) == 1 or self.chain.links[0].end is None or self.chain.links[0].end > offset

    @precondition(lambda self: self.changes > 10)
    @rule()
    def delete(self) -> None:
        self.change(chains.tombstone(self.chain))
        self.deleted = True
        assert self.chain.deleted
        assert self.chain.intent is None

    @invariant()
    def every_offset_is_covered_once(self) -> None:
        chain = self.chain
        assert all(link.end is not None for link in chain.links[:-1])
        assert [link.end for link in chain.links[:-1]] == [link.base for link in chain.links[1:]]
        for offset in range(chain.start, self.tail):
            holders = [link for link in chain.links if link.holds(offset)]
            assert holders == [chain.link_at(offset)]
            assert chain.epoch_at(offset) == self.owners[offset]
        at_tail = chain.link_at(self.tail)
        assert at_tail is (chain.last if chain.last.is_open else None)

    @invariant()
    def epochs_are_in_order_and_were_given_out(self) -> None:
        epochs = [link.epoch for link in self.chain.links if link.kind != TIERED]
        assert epochs == sorted(set(epochs))
        assert {link.epoch for link in self.chain.links} <= self.given_out
        assert self.chain.next_epoch == max(self.given_out) + 1

    @invariant()
    def the_last_changes_are_remembered(self) -> None:
        first = max(0, self.changes - REMEMBERED_NONCES)
        assert self.chain.nonces == tuple(f"nonce {number + 1}" for number in range(first, self.changes))


TestChain = ChainMachine.TestCase


def two_links() -> Chain:
    chain = chains.intend(chains.initial("diskless"), "n", "memory")
    return chains.finish(chain, "n", 10)


def test_a_new_log_has_one_open_link() -> None:
    chain = chains.initial("memory")
    assert chain.links == (Link("memory", 1, 0),)
    assert (chain.start, chain.boundary, chain.next_epoch) == (0, 0, 2)


def test_an_empty_link_is_replaced_so_that_the_chain_stays_short() -> None:
    chain = two_links()
    for number in range(5):
        chain = chains.finish(chains.intend(chain, f"{number}", "memory"), f"{number}", 10)
    assert [(link.base, link.end, link.epoch) for link in chain.links] == [(0, 10, 1), (10, None, 7)]


def test_a_sealed_chain_goes_on_at_its_end() -> None:
    chain = chains.finish(chains.intend(two_links(), "s", None), "s", 25)
    assert chain.last.end == 25
    assert chain.link_at(25) is None
    chain = chains.finish(chains.intend(chain, "r", "diskless"), "r", 25)
    assert chain.last == Link("diskless", 4, 25)


def test_a_tail_below_the_base_is_a_bug() -> None:
    chain = chains.intend(two_links(), "m", "diskless")
    with pytest.raises(AssertionError):
        chains.finish(chain, "m", 9)


def test_a_sealed_chain_cannot_be_trimmed_beyond_its_end() -> None:
    chain = chains.finish(chains.intend(two_links(), "s", None), "s", 25)
    assert chains.trim(chain, 25).links == (chain.last,)
    with pytest.raises(OffsetOutOfRange):
        chains.trim(chain, 26)


def test_the_boundary_cannot_leave_a_sealed_chain() -> None:
    chain = chains.finish(chains.intend(two_links(), "s", None), "s", 25)
    with pytest.raises(AssertionError):
        chains.finish_tiering(chains.begin_tiering(chain, "j"), "j", 0, 26, {})


def test_what_is_still_read_stays_in_the_tiered_link() -> None:
    chain = chains.begin_tiering(chains.trim(two_links(), 5), "j")
    assert chains.finish_tiering(chain, "j", 5, 8, {}).links[0].base == 5
    with pytest.raises(AssertionError):
        chains.finish_tiering(chain, "j", 6, 8, {})


def test_what_was_tiered_has_the_epochs_of_those_who_wrote_it() -> None:
    chain = chains.finish_tiering(chains.begin_tiering(two_links(), "j"), "j", 0, 15, {})
    assert chain.written == ((0, 1), (10, 2))
    assert [chain.epoch_at(offset) for offset in (0, 9, 10, 14, 15)] == [1, 1, 2, 2, 2]
    chain = chains.trim(chain, 12)
    assert chain.eras == ((10, 2),)
    assert chains.trim(chain, 15).eras == ()
