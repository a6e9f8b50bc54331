"""Bytes that nobody should send: valid requests and responses that are cut, changed and spliced, and plain garbage.

    python -m tests.wire.fuzz --inputs 100000 [--seed 1]

Whatever the input is, it is read, or refused by a WireError, within LIMIT_S of CPU time, and no memory is kept. The
same seed makes the same inputs.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from catena.wire.fields import Field, fields_of
from catena.wire.reader import WireError
from catena.wire.requests import parse_request
from catena.wire.schema import Message
from catena.wire.writer import write_message
from tests.wire.messages import BITS, CASES, REQUESTS, Case

LIMIT_S = 1.0
MAX_GROWTH_MB = 100
"""An input may ask for as many entries as a reader takes: tens of MB, which are given back."""
REQUESTS_SET = frozenset(REQUESTS)
MAX_BYTES = 1 << 20
MANY = 2000
KEPT = 64
"""How many inputs are kept to be changed again."""
LENGTHS = [
    *(struct.pack(">i", n) for n in (-1, -2, -(1 << 31), (1 << 31) - 1, 1_000_000)),
    *(struct.pack(">h", n) for n in (-1, -2, -(1 << 15), (1 << 15) - 1)),
    # Compact ones: 0 for null, a million, 2^31 - 1, 2^32 - 1, more than 32 bits, endless.
    *(bytes.fromhex(n) for n in ("00", "c1843d", "ffffffff07", "ffffffff0f", "ffffffff1f", "ffffffffffffffffff")),
]


class TooSlow(Exception):
    """Not a WireError, so that nothing takes it for one."""


class Report(NamedTuple):
    inputs: int
    read: int
    refused: int
    inputs_per_s: float
    slowest_ms: float
    growth_mb: float

    def __str__(self) -> str:
        return (
            f"{self.inputs} inputs: {self.read} read, {self.refused} refused, {self.inputs_per_s:.0f}/s, "
            f"slowest {self.slowest_ms:.1f} ms, peak memory grew by {self.growth_mb:.1f} MB"
        )


def run(inputs: int, seed: int) -> Report:
    """Raises whatever a reader raises that is not a WireError, with the input that made it do so."""
    chance = random.Random(seed)
    for case in CASES:
        read(case, body(chance, case), b"")
    kept = [body(chance, case) for case in chance.sample(CASES, KEPT)]
    before_mb, began = peak_mb(), time.perf_counter()
    done, slowest = 0, 0.0
    for _ in range(inputs):
        case = chance.choice(CASES)
        data = changed(chance, body(chance, case), kept)
        kept[chance.randrange(KEPT)] = data
        head = header(chance, case)
        at = time.perf_counter()
        try:
            with cpu_limit():
                read(case, data, head)
            done += 1
        except WireError:
            pass
        except BaseException as error:
            error.add_note(f"{case}: {(head + data)[:2000].hex()}")
            raise
        slowest = max(slowest, time.perf_counter() - at)
    took = time.perf_counter() - began
    return Report(inputs, done, inputs - done, inputs / took, slowest * 1000, peak_mb() - before_mb)


def read(case: Case, data: bytes, head: bytes) -> None:
    if head and case in REQUESTS_SET:
        parse_request(memoryview(head + data))
    else:
        case.read(data)


def header(chance: random.Random, case: Case) -> bytes:
    client_id = b"\xff\xff" if chance.random() < 0.2 else b"\0\3abc"
    head = struct.pack(">hhi", case.api.key, case.version, 7) + client_id + (b"\0" if case.flexible else b"")
    return changed(chance, head, [head]) if chance.random() < 0.05 else head


def body(chance: random.Random, case: Case) -> bytes:
    message = random_message(chance, case.message, case.version)
    return b"".join(write_message(message, case.version, case.flexible, []))


def changed(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    for _ in range(chance.choice([0, 1, 1, 1, 2, 5])):
        at = chance.randint(0, len(data))
        match chance.randrange(7):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + chance.randbytes(1) + data[at + 1 :]
            case 2:
                bit = bytes([data[at] ^ 1 << chance.randrange(8)]) if at < len(data) else b""
                data = data[:at] + bit + data[at + 1 :]
            case 3:
                length = chance.choice(LENGTHS)
                data = data[:at] + length + data[at + chance.choice([0, 1, len(length)]) :]
            case 4:
                other = chance.choice(others)
                data = data[:at] + other[chance.randint(0, len(other)) :]
            case 5:
                data = data[:at] + data[at + chance.randint(1, 8) :]
            case 6:
                data = chance.randbytes(chance.randrange(200))
    return data[:MAX_BYTES]


def random_message(chance: random.Random, message: type[Message], version: int) -> Any:
    fields = fields_of(message, version)
    # A tagged field is left at its default more often than not, as it is in life.
    set_fields = [field for field in fields if field.tag is None or chance.random() < 0.4]
    return message(**{field.name: _random_field(chance, field, version) for field in set_fields})


def _random_field(chance: random.Random, field: Field, version: int) -> Any:
    if field.is_nullable and chance.random() < 0.2:
        return None
    if field.is_array and chance.random() < 0.01 and _is_flat(field, version):
        return [_random_value(chance, field, version)] * MANY
    if field.is_array:
        return [_random_value(chance, field, version) for _ in range(chance.choice([0, 1, 1, 2]))]
    return _random_value(chance, field, version)


def _is_flat(field: Field, version: int) -> bool:
    """Whether there are no arrays in this array, which would make many of many."""
    return field.nested is None or not any(inner.is_array for inner in fields_of(field.nested, version))


def _random_value(chance: random.Random, field: Field, version: int) -> Any:
    if field.nested is not None:
        return random_message(chance, field.nested, version)
    match field.kind:
        case "?":
            return chance.random() < 0.5
        case "uuid":
            return chance.randbytes(16).hex()
        case "string":
            return "topic-é"[: chance.randrange(8)] * chance.choice([1, 1, 1, 30])
        case "bytes":
            return chance.randbytes(chance.randrange(6))
        case "records":
            return [chance.randbytes(chance.choice([0, 5, 200]))]
    return chance.choice([0, 1, -1, chance.getrandbits(BITS[field.kind] - 1)])


@contextmanager
def cpu_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow(f"more than {LIMIT_S} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = run(options.inputs, options.seed)
    print(report)
    if report.growth_mb > MAX_GROWTH_MB:
        print(f"it may grow by {MAX_GROWTH_MB} MB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
