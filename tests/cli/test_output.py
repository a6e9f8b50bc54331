"""Columns, times and counts as people read them."""

from __future__ import annotations

import pytest

from catena.cli.output import count, print_columns, show_time


def test_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(["NAME", "COUNT"], [["a", 1], ["longer name", 12345]])
    assert capsys.readouterr().out == ("NAME          COUNT\na                 1\nlonger name  12,345\n")


def test_columns_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(["NAME"], [])
    assert capsys.readouterr().out == "NAME\n"


def test_words() -> None:
    assert [count(number, "record") for number in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]
    assert show_time(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
