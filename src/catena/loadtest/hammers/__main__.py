"""`python -m catena.loadtest.hammers`: do what the order on stdin says."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys

from catena.loadtest.hammers.base import Orders, Said, say
from catena.runtime import SystemClock


def main() -> int:
    # Ctrl-C is for the orchestrator, which tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = Orders()
    gc.disable()  # no cycles are made for each record, and a pause would be taken for one of the server
    clock = SystemClock()
    try:
        match orders.order.role:
            case "kafka-produce":
                from catena.loadtest.hammers.kafka_produce import produce

                produce(orders, clock)
            case "kafka-consume":
                from catena.loadtest.hammers.kafka_consume import consume

                consume(orders, clock)
            case "http-produce":
                from catena.loadtest.hammers.http_produce import produce_over_http

                asyncio.run(produce_over_http(orders, clock))
            case "http-consume":
                from catena.loadtest.hammers.http_consume import consume_over_http

                asyncio.run(consume_over_http(orders, clock))
            case "verify":
                from catena.loadtest.hammers.verify import verify

                verify(orders)
            case role:
                print(f"there is no role {role!r}", file=sys.stderr)
                return 2
    except EOFError:
        return 0
    say(Said(done=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
