"""Topic patterns against Python's own expressions, and what they refuse."""

from __future__ import annotations

import random
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catena.groups import patterns as module
from catena.groups.patterns import MAX_CELLS, MAX_EFFORT, TopicPattern

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
        "(((((){1000}){1000}){1000}){1000}){1000}",
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


@pytest.mark.parametrize(
    "pattern",
    [
        "(.?){900}a",
        ".?" * 400 + "a",
        "(((a?){10}){10}){10}",
        ".*a.{12}",
        "(.*a)" * 190,
        "a*" * 490,
        "((((){1000}){1000}){1000}){1000}",
        "|".join(character + "{50}" for character in string.ascii_letters + string.digits),
    ],
)
def test_what_would_be_costly_to_match_is_refused_in_bounded_time(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    efforts: list[int] = []
    spend = module._Machine.spend

    def spend_and_tell(machine: module._Machine, effort: int) -> None:
        efforts.append(effort)
        spend(machine, effort)

    monkeypatch.setattr(module._Machine, "spend", spend_and_tell)
    with pytest.raises(ValueError, match="regular expression is too costly"):
        TopicPattern(pattern)
    assert sum(efforts[:-1]) <= MAX_EFFORT
    assert len(efforts) <= MAX_EFFORT


def some_names(count: int) -> list[str]:
    chance = random.Random(count)
    return ["".join(chance.choices(string.ascii_lowercase + string.digits + "-._", k=11)) for _ in range(count)]


@pytest.mark.parametrize(
    "pattern",
    [
        "|".join(some_names(80)),
        ".*(" + "|".join(some_names(15)) + ").*",
        "[a-z]{1,50}[._-][0-9]{1,10}",
        "(?i)(prod|test)[.](eu|us)-[a-z0-9]+(-[a-z0-9]+)*[.]v[0-9]+",
        ".*foo.*bar.*baz.*",
        ".{1,249}",
        "a{1000}",
        ".*a.{8}",
    ],
)
def test_what_people_write_is_taken(pattern: str) -> None:
    table = TopicPattern(pattern)._table
    assert len(table.rows) <= MAX_CELLS
    names = [*some_names(80), *some_names(15), "prod.eu-a-b.v1", "xfoobarbaz", "abc-123", "x" * 249, "b" + "a" * 9]
    expression = re.compile(pattern)
    assert [TopicPattern(pattern).matches(name) for name in names] == [bool(expression.fullmatch(n)) for n in names]


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    try:
        TopicPattern(text).matches("abc")
    except ValueError:
        pass
