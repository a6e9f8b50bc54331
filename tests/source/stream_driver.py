"""A Spark driver that streams the topic `orders` into `copy`, until it is killed or has come to the end.

    python -m tests.source.stream_driver CHECKPOINT now|forever

The log is the one that CATENA_* in the environment names. It says when its query has begun, when a batch is done, and
when it has come to the end.
"""

from __future__ import annotations

import sys
from typing import Any

from catena.pipeline.spark.session import open_spark

LIMIT = 15
POLL_S = 0.05


def stream(spark: Any, checkpoint: str, trigger: dict[str, Any]) -> Any:
    """Partition by partition, so that the copy can be compared offset by offset."""
    frame = (
        spark.readStream.format("catena")
        .options(subscribe="orders", startingOffsets="earliest", includeHeaders="true", maxOffsetsPerTrigger=LIMIT)
        .load()
    )
    options = {"topic": "copy", "checkpointLocation": checkpoint}
    return frame.drop("topic").writeStream.format("catena").options(**options).trigger(**trigger).start()


def main(checkpoint: str, until: str) -> None:
    with open_spark("local[2,3]") as spark:
        query = stream(spark, checkpoint, {"availableNow": True} if until == "now" else {"processingTime": "0 seconds"})
        print("begun", flush=True)
        told = -1
        while not query.awaitTermination(POLL_S):
            done = (query.lastProgress or {"batchId": -1})["batchId"]
            if done != told:
                told = done
                print("batch", flush=True)
        print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
