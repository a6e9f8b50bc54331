"""How a chain is drawn."""

from __future__ import annotations

from catena.cli.chain import draw
from catena.virtual_log.chain import Chain, Intent, Link, initial
from tests.cli.conftest import Catena


def drawn(chain: Chain, tail: int) -> str:
    return "\n".join(draw("orders/0", chain, tail)).replace("─" * 46, "──")


def test_a_new_log() -> None:
    assert drawn(initial("diskless"), 0) == (
        "orders/0: 1 link, empty\n"
        "\n"
        "offset\n"
        "     0 ┌──\n"
        "       │ diskless  epoch 1    0 records          takes appends\n"
        "     0 ▼ the next append"
    )


def test_links_trimmed_and_sealed() -> None:
    links = (Link("diskless", 1, 0, 1000), Link("memory", 2, 1000, 1001), Link("diskless", 3, 1001, 12345))
    assert drawn(Chain(links, next_epoch=5, start=10), 12345) == (
        "orders/0: 3 links, 12,335 records from offset 10 on\n"
        "\n"
        "offset\n"
        "     0 ┌──\n"
        "       │ diskless  epoch 1    1,000 records      closed\n"
        "       │           trimmed up to offset 10\n"
        " 1,000 ├──\n"
        "       │ memory    epoch 2    1 record           closed\n"
        " 1,001 ├──\n"
        "       │ diskless  epoch 3    11,344 records     closed\n"
        "12,345 ┴── sealed"
    )


def test_a_change_that_is_under_way() -> None:
    moving = Chain((Link("diskless", 1, 0),), next_epoch=3, intent=Intent("n", 2, "memory"))
    assert drawn(moving, 5).endswith("a change is under way: a memory link is to follow, epoch 2")
    sealing = Chain((Link("diskless", 1, 0),), next_epoch=3, intent=Intent("n", 2))
    assert drawn(sealing, 5).endswith("a change is under way: the log is to be sealed, epoch 2")


def test_the_command(catena: Catena) -> None:
    catena("topic", "create", "orders")
    assert catena("chain", "orders", "0").out.startswith("orders/0: 1 link, empty\n")
    assert catena("chain", "orders", "0", "--json").json == {
        "topic": "orders",
        "partition": 0,
        "tail": 0,
        "start": 0,
        "links": [{"kind": "diskless", "epoch": 1, "base": 0, "end": None, "params": {}}],
        "next_epoch": 2,
        "intent": None,
        "revision": 0,
    }
    assert catena("chain", "orders", "1").code == 2
    assert catena("chain", "missing", "0").code == 2
