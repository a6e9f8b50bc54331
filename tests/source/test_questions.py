"""Questions and answers survive their way."""

from __future__ import annotations

import msgspec
import pytest

from catena.loglets.base import Extent
from catena.source.offsets import StreamOffsets, TopicOffsets
from catena.source.questions import Answer, InitialOffsets, LatestOffsets, PlanBatch, PlanStream, Question, Tails
from catena.source.splitting import Split
from catena.types import Offset, TopicId

OFFSETS = StreamOffsets({"orders": TopicOffsets(TopicId("id"), {0: Offset(7), 11: Offset(0)})})


@pytest.mark.parametrize(
    "ask", [PlanBatch(), InitialOffsets(), Tails(), LatestOffsets(OFFSETS, 5, OFFSETS), PlanStream(OFFSETS, OFFSETS)]
)
def test_questions(ask: PlanBatch | InitialOffsets | Tails | LatestOffsets | PlanStream) -> None:
    question = Question(True, {"subscribe": "orders"}, ask)
    assert msgspec.json.decode(msgspec.json.encode(question), type=Question) == question


def test_answers() -> None:
    extents = (Extent(Offset(0), Offset(5), "k", 10, 20), Extent(Offset(5), Offset(6), "old"))
    split = Split("orders", TopicId("id"), 0, Offset(1), Offset(6), extents)
    answer = Answer(OFFSETS, OFFSETS, [split], {"k": "/x", "old": "http://y"}, ["lost"])
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer
