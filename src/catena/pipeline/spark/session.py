"""A Spark session: started fast and quietly, ended without a trace.

`master` runs a driver of its own in a JVM below this process: on this machine (`local[2,3]`: two tasks at once, three
tries), or with executors on a cluster. `remote` is a Spark Connect server, which needs no Java here. PySpark allows one
driver in a process at a time.

The JVM leads a session of processes, so that a Ctrl-C in the terminal reaches us only; it ends when we do, however
that happens, because its standard input does. What it says goes to a file that is shown when it can't be started.
Whatever it writes is in one temporary folder, which is removed. PySpark's own handler of SIGINT is taken off again.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from catena.errors import ConfigError
from catena.pipeline.spark.folder import driver_folder
from catena.pipeline.spark.java import Java, class_archive, find_java, java_home_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP_NAME = "catena"
TRIES = 3
"""Of a task whose worker or executor dies; what a task raises is a result, and not tried again by Spark."""
JVM_END_MAX_S = 120
"""It takes a second; but the one that writes the class archive (archive.py) does so as it ends."""
QUICK_TO_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A small collector and the fast compiler: the bytes of the log do not come through the JVM. An option that is given
comes behind these, and wins."""
CONNECT_PORT = 15002
CONNECT_MAX_S = 10
CONNECT_RETRIES = 6
"""A server that is away for a minute is waited for."""
SOCKET_PATH_MAX = 107
SOCKET_NAME_CHARS = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
LOG_LINES_SHOWN = 5

_LOCAL = re.compile(r"local(?:\[(\d+|\*)\])?")

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@contextmanager
def open_spark(
    master: str | None = None,
    remote: str | None = None,
    options: Mapping[str, str] | None = None,
    show_log: bool = False,
) -> Iterator[SparkSession]:
    """Without `master` and `remote` it is this machine, all cores; `options` are Spark's own, and win over ours.

    `show_log` lets Spark say on stderr what it does.
    """
    if master and remote:
        raise ConfigError("options master and remote: only one of them can say where Spark is")
    check_pyspark(connect=bool(remote))
    opened = _connect(remote, options or {}) if remote else _drive(master, options or {}, show_log)
    with opened as session:
        yield session


def with_tries(master: str | None) -> str:
    """A local master that says nothing of tries has one; ours has as many as a cluster."""
    local = _LOCAL.fullmatch(master or "local[*]")
    return f"local[{local[1] or '1'},{TRIES}]" if local else str(master)


def check_pyspark(connect: bool = False) -> None:
    """Raise ConfigError, with what to install, unless PySpark and what it needs are here."""
    try:
        import pyarrow  # noqa: F401
        import pyspark
        from pyspark.sql import DataFrame
        from pyspark.sql.pandas.utils import require_minimum_pandas_version

        require_minimum_pandas_version()
        if not hasattr(DataFrame, "repartitionById"):
            raise ImportError(f"PySpark 4.1 or newer is needed, and this is {pyspark.__version__}")
        if connect:
            from pyspark.sql.connect.session import SparkSession  # noqa: F401
    except ImportError as error:
        extra = "spark-connect" if connect else "spark"
        raise ConfigError(f"Spark can't be used here ({error}): pip install 'catena-log[{extra}]'") from error


@contextmanager
def _connect(remote: str, options: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    try:
        address = urlsplit(remote)
        # Looked at first, because Spark's client would knock for ten minutes.
        socket.create_connection((address.hostname or "", address.port or CONNECT_PORT), CONNECT_MAX_S).close()
        session = SparkSession.builder.remote(remote).appName(APP_NAME).config(map=dict(options)).create()
    except (OSError, ValueError, PySparkException) as error:
        raise ConfigError(f"option remote: no Spark Connect server at {remote}: {first_line(error)}") from error
    try:
        session.client.set_retry_policies([DefaultPolicy(max_retries=CONNECT_RETRIES)])
        yield session
    finally:
        session.stop()


@contextmanager
def _drive(master: str | None, options: Mapping[str, str], show_log: bool) -> Iterator[SparkSession]:
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        raise ConfigError("this process has a Spark driver already, and PySpark allows one at a time")
    master = with_tries(master)
    with driver_folder() as folder:
        java = find_java(os.environ)
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(_conf(master, folder, java, options, show_log).items()))
        with _environment(_variables(master, java_home_for_spark(java, folder))), _same_sigint():
            gateway = _launch(conf, folder, show_log)
            session = _start(conf, gateway)
        try:
            yield session
        finally:
            _end(session, gateway)


def _start(conf: Any, gateway: Any) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        context = SparkContext(conf=conf, gateway=gateway)
        _quieten(context._accumulatorServer)
        return SparkSession(context)
    except Exception as error:
        problem = first_line(error)
        _end(None, gateway)
        raise ConfigError(f"Spark could not be started with master {conf.get('spark.master')}: {problem}") from error


def _quieten(server: Any) -> None:
    """That a JVM was killed is told by whoever waits for it, and need not be told again with a traceback."""
    say = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            say(request, address)

    server.handle_error = handle_error


def _conf(master: str, folder: Path, java: Java, options: Mapping[str, str], show_log: bool) -> dict[str, str]:
    import pyspark

    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J.format(level="info" if show_log else "error"))
    java_options = [*QUICK_TO_START, f"-Dlog4j2.configurationFile=file:{log4j}", f"-Djava.io.tmpdir={folder}"]
    archive = class_archive(java, pyspark.__version__)
    if archive is not None and archive.file.exists():
        java_options.append(f"{archive.use}{archive.file}")
    given = options.get("spark.driver.extraJavaOptions", "")
    ours = {
        "spark.app.name": APP_NAME,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": str(TRIES),
        "spark.scheduler.mode": "FAIR",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    }
    if len(str(folder)) + SOCKET_NAME_CHARS <= SOCKET_PATH_MAX and on_this_machine(master):
        ours |= {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}
    if on_this_machine(master):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        ours |= {"spark.executor.extraJavaOptions": " ".join(QUICK_TO_START)}
    always = {
        "spark.master": master,
        "spark.driver.extraJavaOptions": " ".join([*(f'"{option}"' for option in java_options), given]).strip(),
    }
    return {**ours, **options, **always}


def on_this_machine(master: str) -> bool:
    return master.startswith("local")


def _variables(master: str, java_home: Path) -> dict[str, str]:
    import pyspark

    inherited = os.environ
    loopback = ",".join(filter(None, [inherited.get("NO_PROXY"), "127.0.0.1", "localhost"]))
    variables = {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": inherited.get("SPARK_HOME") or str(Path(pyspark.__file__).parent),
        "NO_PROXY": loopback,
        "no_proxy": loopback,
    }
    if on_this_machine(master):
        variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return variables


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """PySpark takes what it starts the JVM with from the environment, and from nowhere else."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _same_sigint() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _launch(conf: Any, folder: Path, show_log: bool) -> Any:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    says = folder / "spark.log"
    with says.open("wb") as log:
        output = {} if show_log else {"stdout": log, "stderr": subprocess.STDOUT}
        try:
            return launch_gateway(conf, {**output, "start_new_session": True})
        except PySparkRuntimeError as error:
            said = says.read_text(errors="replace").strip().splitlines()
            lines = [line for line in said if not line.lstrip().startswith("at ")][-LOG_LINES_SHOWN:]
            raise ConfigError(f"Spark's JVM could not be started: {' / '.join(lines) or first_line(error)}") from error


def _end(session: SparkSession | None, gateway: Any) -> None:
    from pyspark import SparkContext, accumulators

    with warnings.catch_warnings():
        # That the JVM was gone already is no news to who ends it.
        warnings.simplefilter("ignore", RuntimeWarning)
        for step in [*([session.stop] if session is not None else []), gateway.shutdown]:
            try:
                step()
            except Exception:
                pass
    # Kept by PySpark, which would give the next session this JVM, with the options of this one.
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    accumulators._accumulatorRegistry.clear()  # with whom they told, which is the whole of the work that was done here
    process = gateway.proc
    if process is None:
        return
    process.stdin.close()
    try:
        process.wait(JVM_END_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def first_line(error: Exception) -> str:
    """What a Java exception says, without its stack."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)
