"""The only place where time, chance, disks and tasks come in; everything above is handed these and can be simulated."""

from catena.runtime.clock import Clock, SystemClock
from catena.runtime.disk import Disk, FileLock
from catena.runtime.entropy import Entropy, SystemEntropy
from catena.runtime.tasks import Tasks

__all__ = ["Clock", "Disk", "Entropy", "FileLock", "SystemClock", "SystemEntropy", "Tasks"]
