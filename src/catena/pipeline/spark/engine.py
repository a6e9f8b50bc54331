"""What differs between a driver of our own and a Spark Connect server: tags, early answers, and how to see its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EarlyAnswers: TypeAlias = list[tuple[str, int, bytes]]
"""The name of the run, the number of the plan, the answer."""


class Engine(Protocol):
    plans_per_job: int

    def inbox(self, deliver: Callable[[EarlyAnswers], None]) -> Any:
        """An accumulator, if there are any; `deliver` is called in a thread of PySpark's, and MUST NOT raise."""

    def begin(self, tag: str, pool: str) -> None:
        """What this thread starts from now on bears the tag, and shares the slots with other pools evenly, where Spark
        is ours: none waits for all that others have asked for before."""

    def end(self, tag: str) -> None: ...

    def cancel(self, tag: str) -> None: ...

    def is_alive(self) -> bool: ...


class DriverEngine:
    plans_per_job = 4096

    def __init__(self, session: SparkSession) -> None:
        self._spark = session.sparkContext

    def inbox(self, deliver: Callable[[EarlyAnswers], None]) -> Any:
        return self._spark.accumulator([], Inbox(deliver))

    def begin(self, tag: str, pool: str) -> None:
        # Not SparkSession.addTag: that one's jobs are not found again by interruptTag.
        self._spark.setInterruptOnCancel(True)
        self._spark.addJobTag(tag)
        self._spark.setLocalProperty("spark.scheduler.pool", pool)

    def end(self, tag: str) -> None:
        self._spark.removeJobTag(tag)

    def cancel(self, tag: str) -> None:
        self._spark.cancelJobsWithTag(tag)

    def is_alive(self) -> bool:
        try:
            return not self._spark._jsc.sc().isStopped()
        except Exception:
            return False


class ConnectEngine:
    plans_per_job = 256
    """Nothing is heard of a job before its end, so it should not be far away."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def inbox(self, deliver: Callable[[EarlyAnswers], None]) -> Any:  # noqa: ARG002
        return None

    def begin(self, tag: str, pool: str) -> None:  # noqa: ARG002
        self._session.addTag(tag)

    def end(self, tag: str) -> None:
        self._session.removeTag(tag)

    def cancel(self, tag: str) -> None:
        self._session.interruptTag(tag)

    def is_alive(self) -> bool:
        try:
            return bool(self._session.version)
        except Exception:
            return False


def engine_of(session: SparkSession) -> Engine:
    is_connect = type(session).__module__.startswith("pyspark.sql.connect")
    return ConnectEngine(session) if is_connect else DriverEngine(session)


class Inbox:
    """Answers on their way through an accumulator: gathered in a worker, delivered on the driver and not kept there.

    An AccumulatorParam by its methods. Spark updates the driver's once for each task of a job that ended well, however
    often it was tried.
    """

    def __init__(self, deliver: Callable[[EarlyAnswers], None] | None = None) -> None:
        self._deliver = deliver

    def zero(self, _: EarlyAnswers) -> EarlyAnswers:
        return []

    def addInPlace(self, mine: EarlyAnswers, more: EarlyAnswers) -> EarlyAnswers:
        if self._deliver is None:
            return mine + more
        self._deliver(more)
        return mine

    def __reduce__(self) -> tuple[type[Inbox], tuple[()]]:
        return Inbox, ()
