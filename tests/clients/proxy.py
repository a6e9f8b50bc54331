"""A way to a node on which answers get lost: what the node was asked it does, and the client never hears of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK = 1 << 16


class Proxy:
    """Clients connect to `address`. The node has the listener `listener`, so that it sends its clients here, too."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._target = ("127.0.0.1", free.getsockname()[1])
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._deaf = False
        """Answers are read and thrown away."""
        self._lost = threading.Event()
        """Set when that has happened to one."""

    @property
    def listener(self) -> str:
        host, port = self._target
        return f"behind={host}:{port}@{self.address}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self._hang_up()
        for thread in self._threads:
            thread.join()

    def lose_answers(self) -> None:
        """From now on, until it hangs up."""
        self._lost.clear()
        self._deaf = True

    def hang_up(self, within_s: float) -> None:
        """On all, once an answer was lost."""
        assert self._lost.wait(within_s)
        self._hang_up()
        self._deaf = False

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    node = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._open += (client, node)
                self._start(self._carry, client, node, False)
                self._start(self._carry, node, client, True)

    def _carry(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if answers and self._deaf:
                    self._lost.set()
                else:
                    sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def _hang_up(self) -> None:
        with self._lock:
            ended, self._open = self._open, []
        for each in ended:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
