from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from catena.runtime.heaps import HEAPS

THREADS = 6
PROGRAM = """
import ctypes, sys, threading
from catena.runtime.heaps import share_heaps

if sys.argv[1] == "shared":
    share_heaps()
libc = ctypes.CDLL(None)
everyone = threading.Barrier(int(sys.argv[2]))

def allocate():
    everyone.wait()
    libc.malloc(1000)  # its own call, for Python's objects may lie elsewhere
    everyone.wait()

threads = [threading.Thread(target=allocate) for _ in range(int(sys.argv[2]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def heaps(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how, str(THREADS)], capture_output=True, text=True, check=True)
    return ran.stdout.count("<heap ")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other heaps")
def test_threads_share_heaps() -> None:
    assert heaps("shared") <= HEAPS < heaps("as it is")
