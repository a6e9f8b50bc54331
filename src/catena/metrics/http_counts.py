"""What was asked over HTTP: requests, bytes and latencies by path; see `catena.counting`.

Paths are those that the node has, and one for all others; so however many a client makes up, there are few of them.
"""

from __future__ import annotations

import msgspec

from catena.counting import Histogram, add_to

OTHER = "other"
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")


class PathCounts(msgspec.Struct):
    answers: dict[str, int] = {}
    """By method and status: `GET 200`."""
    bytes_in: int = 0
    """Of bodies."""
    bytes_out: int = 0
    seconds: Histogram = msgspec.field(default_factory=Histogram)


class HttpCounts:
    def __init__(self) -> None:
        self.paths: dict[str, PathCounts] = {}

    def observe(self, path: str, method: str, status: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """`path`: the one that was found, or `other`."""
        counts = self.paths.get(path)
        if counts is None:
            counts = self.paths[path] = PathCounts()
        add_to(counts.answers, f"{method if method in METHODS else OTHER} {status}")
        counts.bytes_in += bytes_in
        counts.bytes_out += bytes_out
        counts.seconds.observe(seconds)
