from __future__ import annotations

import msgspec
import pytest

from catena.errors import ConfigError
from catena.loadtest.orders import Bounds
from catena.loadtest.scenario import Topic
from catena.loadtest.stack import Stack
from catena.loadtest.topics import look_at_bounds, precreate
from tests.loadtest.conftest import SMALL


@pytest.mark.long
async def test_topics_are_made_once_and_asked_for_their_offsets(stack: Stack) -> None:
    some = msgspec.structs.replace(SMALL, topics=(Topic("made-here", 2),))  # others have theirs on the same stack
    more = msgspec.structs.replace(some, topics=(*some.topics, Topic("and-here")))
    assert await precreate(stack, some) == ["made-here"]
    assert await precreate(stack, more) == ["and-here"]
    assert await look_at_bounds(stack, more) == dict.fromkeys(more.places, Bounds(0, 0))
    other = msgspec.structs.replace(some, topics=(Topic("made-here", 3),))
    with pytest.raises(ConfigError, match="topic made-here is there with 2 partitions, and not with 3"):
        await precreate(stack, other)
