"""Apache Kafka, to stand beside: one node in KRaft mode, from Maven Central, started as its own scripts start it.

The jars are fetched once, by mvn, into `.dev` of the checkout; BENCH_KAFKA_JARS names a folder that has them already.
Heap and garbage collector are those of Kafka's start script, everything else is Kafka's default. By default Kafka acks
what is in the page cache, and leaves it to the kernel when that is written to the disk.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.kafka_wire import answers_metadata
from bench.maven import Artifact, fetch_jars
from bench.serving import START_MAX_S, ServerError, Serving, child, last_words

KAFKA = (Artifact("org.apache.kafka", "kafka_2.13", "4.3.1"),)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
JVM = (
    *("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
POLL_S = 0.02


@contextmanager
def apache_kafka(folder: Path) -> Iterator[Serving]:
    """A new node with its data below `folder`. To format the disk is not part of its start."""
    jars = fetch_jars(KAFKA, "BENCH_KAFKA_JARS")
    folder.mkdir(parents=True, exist_ok=True)
    kafka_port, controller_port = free_ports(2)
    properties = folder / "server.properties"
    properties.write_text(properties_of(folder / "data", kafka_port, controller_port))
    java = ["java", *JVM, "-cp", f"{jars}/*"]
    tool = [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(properties)]
    formatted = subprocess.run(tool, capture_output=True, text=True, timeout=START_MAX_S, check=False)
    if formatted.returncode:
        raise ServerError(f"kafka-storage failed: {formatted.stdout[-500:]} {formatted.stderr[-500:]}")
    started = time.perf_counter()
    with child([*java, "kafka.Kafka", str(properties)], folder) as process:
        address = f"127.0.0.1:{kafka_port}"
        while not answers_metadata(address):
            if process.poll() is not None or time.perf_counter() - started > START_MAX_S:
                raise ServerError(f"Kafka is not ready within {START_MAX_S:g} s: {last_words(folder)}")
            time.sleep(POLL_S)
        yield Serving(process.pid, address, time.perf_counter() - started)


def properties_of(data: Path, kafka_port: int, controller_port: int) -> str:
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka_port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def free_ports(count: int) -> list[int]:
    with ExitStack() as bound:  # all at once, so that none is found twice
        sockets = [bound.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
