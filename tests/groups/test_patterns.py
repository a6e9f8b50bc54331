"""Topic patterns against Python's own expressions, and what they refuse."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catena.groups.patterns import TopicPattern

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\.", "-", "^", "$", "[a-c_]", r"\W", "A"])


def _wrap(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    )


PATTERNS = st.recursive(ATOMS, _wrap, max_leaves=8)
NAMES = st.text("abAc0._-", min_size=1, max_size=6)


@given(PATTERNS, NAMES)
@example("^a$", "a")
@example("(a|)b", "b")
def test_a_pattern_matches_the_names_that_python_matches(pattern: str, name: str) -> None:
    expected = re.compile(pattern.replace(r"\z", r"\Z")).fullmatch(name) is not None
    compiled = TopicPattern(pattern)
    assert compiled.matches(name) == expected
    assert compiled.matches(name) == expected, "the second time, from what it remembers"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("(?i)ORDERS-[a-c]", "orders-B", True),
        ("(?P<team>x|y)-.*", "y-1", True),
        ("(?<team>x)", "x", True),
        (r"\Aa\z", "a", True),
        ("a{2", "a", False),
        ("[]a]", "a", True),
        ("[a-]", "-", True),
        ("", "a", False),
        (r"\n", "a", False),
    ],
)
def test_syntax(pattern: str, name: str, matches: bool) -> None:
    assert TopicPattern(pattern).matches(name) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "[]",
        "*",
        "a**",
        "a{2}{3}",
        "a{3,2}",
        "a{1001}",
        r"(a)\1",
        "(?=a)",
        "(?<=a)",
        "(?!a)",
        "(?<n!>a)",
        "a(?i)",
        "\\",
        r"\b",
        r"\pN",
        "[[:alpha:]]",
        "[z-a]",
        r"[\d-z]",
        "(((a{1000}){1000}){1000})",
        "(" * 60 + ")" * 60,
        "a" * 1001,
    ],
)
def test_what_can_not_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "a*a*a*a*a*a*a*a*b", "(.*.*.*.*)*b"])
def test_patterns_that_make_others_hang_are_matched_at_once(pattern: str) -> None:
    assert not TopicPattern(pattern).matches("a" * 249)
    assert TopicPattern(pattern).matches("a" * 248 + "b")


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    try:
        TopicPattern(text).matches("abc")
    except ValueError:
        pass
