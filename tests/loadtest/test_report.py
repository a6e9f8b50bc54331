from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catena.loadtest.analysis import Recorded
from catena.loadtest.capacity import Search, Step
from catena.loadtest.environment import snapshot
from catena.loadtest.report import charts, ms, usd, write_report
from catena.loadtest.run_folder import ENVIRONMENT, REPORT, RunFolder
from tests.loadtest.lines import SCENARIO, made_up
from tests.loadtest.test_summary import summary_of


class Balanced(HTMLParser):
    """Every tag that is opened is closed, in order."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(folder: RunFolder, **changes: Any) -> str:
    folder.write(ENVIRONMENT, snapshot({}))
    write_report(folder, summary_of(folder, **changes))
    return (folder.path / REPORT).read_text()


def test_one_page_that_needs_nothing_from_anywhere(tmp_path: Path) -> None:
    page = page_of(made_up(tmp_path))
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert parser.links == []
    assert not re.search(r"https?://|@import|url\(", page)


def test_it_shows_what_was_asked_for(tmp_path: Path) -> None:
    page = page_of(made_up(tmp_path))
    for title in (
        *("Throughput", "Produce latency", "End-to-end latency", "CPU", "Memory", "Object store requests"),
        *("Cost of requests", "Records, as each side counts them", "Hammers", "Processes", "kill node-1"),
    ):
        assert title in page
    assert 'class="good">clean<' in page


def test_what_is_wrong_stands_first_and_is_escaped(tmp_path: Path) -> None:
    page = page_of(made_up(tmp_path), in_log=1, dead_hammers={"kafka-produce-1": "<script>alert(1)</script>"})
    assert 'class="bad">not clean<' in page
    assert "are not in the log" in page
    assert "<script>" not in page


def test_steps_of_a_search(tmp_path: Path) -> None:
    search = Search(SCENARIO.capacity)
    search.add(Step(1.0, 1.0, 5.0, 9.0, 0.0, t=2.0))
    search.add(Step(2.0, 1.0, None, None, 0.0, t=10.0))
    page = page_of(made_up(tmp_path), search=search)
    assert "nothing was acked" in page
    assert "1.0 MB/s" in page


def test_charts_without_anything_are_left_out(tmp_path: Path) -> None:
    folder = made_up(tmp_path)
    summary = summary_of(folder)
    recorded = Recorded(folder)
    assert len(charts(summary, recorded)) == 8
    recorded.counted.clear()
    assert [chart.title for chart in charts(summary, recorded)][-1] == "Memory, resident"


def test_a_report_can_be_made_of_the_directory_alone(tmp_path: Path) -> None:
    folder = made_up(tmp_path)
    first = page_of(folder)
    folder.write("summary.json", summary_of(folder))
    write_report(folder, folder.read("summary.json", dict[str, Any]))
    sizes = msgspec.json.encode(first), msgspec.json.encode((folder.path / REPORT).read_text())
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.2, "0.2 ms"), (12.4, "12 ms"), (1_234.0, "1,234 ms")])
def test_milliseconds(value: float | None, text: str) -> None:
    assert ms(value) == text


def test_dollars() -> None:
    assert (usd(None), usd(0.00012), usd(12.5)) == ("-", "$0.0001", "$12.50")
