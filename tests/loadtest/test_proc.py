from __future__ import annotations

import os
import subprocess
import sys

from catena.loadtest.proc import look_at_host, usage_of


def test_a_process_counts_with_what_it_has_started() -> None:
    code = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print('up', flush=True); "
        "sys.stdin.read(); p.kill(); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = usage_of({"child": child.pid, "ourselves": os.getpid(), "nobody": 2**22 + 1})
        assert set(found) == {"child", "ourselves"}
        assert found["child"].processes == 2
        assert found["child"].rss_bytes > 1 << 20
        assert found["child"].fds > 2
        assert found["child"].threads >= 2
        assert found["ourselves"].cpu_s > 0
        child.communicate()
    assert usage_of({"child": child.pid}) == {}


def test_the_host() -> None:
    before, after = look_at_host(), look_at_host()
    assert after.cpu_busy_s >= before.cpu_busy_s > 0
    assert 0 < after.available_bytes < after.memory_bytes
    assert after.load_1m >= 0
    assert after.disk_written_bytes >= before.disk_written_bytes
