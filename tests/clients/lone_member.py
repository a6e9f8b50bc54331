"""A member of a group in a process of its own, to be killed: prints a line whenever it is given partitions.

python -m tests.clients.lone_member BOOTSTRAP GROUP TOPIC CONFIG-AS-JSON
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, TopicPartition


def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
    print(json.dumps(sorted(given.partition for given in partitions)), flush=True)


def main(bootstrap: str, group: str, topic: str, config: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **json.loads(config)})
    consumer.subscribe([topic], on_assign=assigned)
    while True:
        consumer.poll(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
