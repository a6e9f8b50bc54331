"""Links that a node hands out: who can make them, and for how long they are good."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catena.source import links

SECRET = links.secret_of("a token that nobody guesses")
NOW = 1_700_000_000_000


def query(link: str) -> str:
    path, _, rest = link.partition("?")
    assert path == links.PATH
    return rest


@given(key=st.text(st.characters(codec="utf-8"), min_size=1), until_ms=st.integers(NOW, 1 << 62))
def test_a_link_names_its_object_until_it_expires(key: str, until_ms: int) -> None:
    asked = query(links.link(SECRET, key, until_ms))
    assert links.key_of(SECRET, asked, until_ms) == key
    assert links.key_of(SECRET, asked, until_ms + 1) is None
    assert links.key_of(links.secret_of("another token, as long"), asked, NOW) is None


@given(at=st.integers(0, 200), with_=st.sampled_from("0123456789abcdef&=%/ \u00e9"))
def test_a_link_that_was_changed_opens_nothing_else(at: int, with_: str) -> None:
    asked = query(links.link(SECRET, "llog/wal-shared/ab", NOW + 1))
    changed = asked[: at % len(asked)] + with_ + asked[at % len(asked) + 1 :]
    assert links.key_of(SECRET, changed, NOW) in (None, "llog/wal-shared/ab")


def test_what_is_no_link() -> None:
    for asked in ("", "key=a", "key=a&until=5&proof=", f"key=a&until={10**30}&proof=00", "until=\u0663&key=a&proof=x"):
        assert links.key_of(SECRET, asked, 0) is None


def test_the_token_is_not_what_links_are_made_with() -> None:
    assert links.secret_of("token") != b"token"
