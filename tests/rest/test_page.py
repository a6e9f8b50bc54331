"""The page for people: it has everything, and needs nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from catena.rest.openapi import document
from catena.rest.page import page

DOCUMENT = document("1.2.3")
PAGE = page(DOCUMENT)


class Names(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")


def test_every_operation_and_schema_is_there_once_and_every_link_leads_somewhere() -> None:
    names = Names()
    names.feed(PAGE)
    operations = [each["operationId"] for item in DOCUMENT["paths"].values() for each in item.values()]
    assert sorted(names.ids) == sorted([*operations, *DOCUMENT["components"]["schemas"]])
    inside = {link.removeprefix("#") for link in names.links if link.startswith("#")}
    assert inside <= set(names.ids)
    assert {link for link in names.links if not link.startswith("#")} == {"openapi.json"}


def test_nothing_comes_from_elsewhere() -> None:
    assert not re.search(r"<script|src=|@import|url\(", PAGE)


def test_every_status_is_told() -> None:
    for item in DOCUMENT["paths"].values():
        for operation in item.values():
            for status, response in operation["responses"].items():
                assert f">{status}<" in PAGE
                assert response["description"].split("`")[0] in PAGE.replace("&#x27;", "'")


def test_the_version_is_told() -> None:
    assert "1.2.3" in PAGE
