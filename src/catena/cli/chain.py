"""`catena chain`: the links of a partition, drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from catena.cli.options import Config, Data, Debug, Json, Topic, common
from catena.cli.output import count, print_json
from catena.cli.running import reporting, run

if TYPE_CHECKING:
    from catena.embedded import Log
    from catena.virtual_log.chain import Chain

RULE = "─" * 46


def chain(
    context: typer.Context,
    topic: Topic,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="Its number.", show_default=False)],
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Draw the links of a partition: which kind of store holds which offsets.

    Reads go to the link that holds an offset, appends to the last one.
    """

    async def look(log: Log) -> tuple[Chain, int]:
        return await log.chain(topic, partition), await log.tail(topic, partition)

    options = common(context, data, config, debug, as_json)
    with reporting(options):
        found, tail = run(options, look)
        if as_json:
            print_json({"topic": topic, "partition": partition, "tail": tail, **as_fields(found)})
        else:
            print("\n".join(draw(f"{topic}/{partition}", found, tail)))


def as_fields(chain: Chain) -> dict[str, object]:
    return {
        "start": chain.start,
        "links": [
            {"kind": link.kind, "epoch": link.epoch, "base": link.base, "end": link.end, "params": link.params}
            for link in chain.links
        ],
        "next_epoch": chain.next_epoch,
        "intent": chain.intent,
        "revision": chain.revision,
    }


def draw(name: str, chain: Chain, tail: int) -> Iterator[str]:
    """A link is a box between two offsets; the oldest is on top."""
    width = max(len(f"{tail:,}"), len("offset"))
    kinds = max(len(link.kind) for link in chain.links)
    records = f"{count(tail - chain.start, 'record')} from offset {chain.start:,} on" if tail > chain.start else "empty"
    yield f"{name}: {count(len(chain.links), 'link')}, {records}"
    yield ""
    yield f"{'offset':>{width}}"
    for number, link in enumerate(chain.links):
        yield f"{link.base:>{width},} {'├' if number else '┌'}{RULE}"
        held = (tail if link.end is None else link.end) - link.base
        state = "takes appends" if link.is_open else "closed"
        yield f"{'':>{width}} │ {link.kind:<{kinds}}  epoch {link.epoch:<4} {count(held, 'record'):<18} {state}"
        if link.base < chain.start:
            yield f"{'':>{width}} │ {'':<{kinds}}  trimmed up to offset {chain.start:,}"
    if chain.last.is_open:
        yield f"{tail:>{width},} ▼ the next append"
    else:
        yield f"{tail:>{width},} ┴{RULE} sealed"
    if chain.intent is not None:
        yield ""
        what = f"a {chain.intent.kind} link is to follow" if chain.intent.kind else "the log is to be sealed"
        yield f"a change is under way: {what}, epoch {chain.intent.epoch}"
