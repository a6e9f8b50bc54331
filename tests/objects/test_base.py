from __future__ import annotations

import pytest

from catena.objects.base import check_key
from catena.testing.contracts.objects import BAD_KEYS


@pytest.mark.parametrize(
    "key", ["a", "a/b", "...", "..a/b..", ".hidden", "A-Z=0_9.x", "a" * 255, "/".join(["a" * 99] * 9)]
)
def test_what_can_be_a_key(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize("key", BAD_KEYS)
def test_what_cannot_be_a_key(key: str) -> None:
    with pytest.raises(ValueError, match="cannot be the key"):
        check_key(key)
