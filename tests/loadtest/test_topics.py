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
    more = msgspec.structs.replace(SMALL, topics=(*SMALL.topics, Topic("more")))
    assert await precreate(stack, SMALL) == ["small"]
    assert await precreate(stack, more) == ["more"]
    assert await look_at_bounds(stack, more) == dict.fromkeys(more.places, Bounds(0, 0))
    other = msgspec.structs.replace(SMALL, topics=(Topic("small", 3),))
    with pytest.raises(ConfigError, match="topic small is there with 2 partitions, and not with 3"):
        await precreate(stack, other)
