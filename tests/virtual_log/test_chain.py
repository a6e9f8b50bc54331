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

    @rule(data=st.data())
    def advance_base(self, data: st.DataObject) -> None:
        boundary = data.draw(st.integers(0, self.tail))
        if boundary < self.chain.boundary:
            with pytest.raises(StaleView):
                chains.advance_base(self.chain, boundary, {})
            return
        self.change(chains.advance_base(self.chain, boundary, {"manifest": boundary}))
        assert self.chain.links[0].kind == TIERED
        assert self.chain.links[0].params == {"manifest": boundary}
        assert self.chain.boundary == boundary
        self.give_out(self.chain.links[0].epoch)

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(self.chain.links))
        if link.is_open:
            with pytest.raises(StaleView):
                chains.replace(self.chain, link.epoch, {})
            return
        self.change(chains.replace(self.chain, link.epoch, {"elsewhere": self.changes}))
        found = self.chain.link_of(link.epoch)
        assert found is not None
        assert (found.base, found.end, found.params) == (link.base, link.end, {"elsewhere": self.changes - 1})

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
            assert holders[0].kind == TIERED or holders[0].epoch == self.owners[offset]
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
        chains.advance_base(chain, 26, {})
