"""The only place where time, chance, sockets, disks and tasks come in: all above is handed them, and is simulated."""

from catena.runtime.clock import Clock, SystemClock
from catena.runtime.disk import Disk, FileLock
from catena.runtime.entropy import Entropy, SystemEntropy
from catena.runtime.network import Listener, Network, SystemNetwork
from catena.runtime.tasks import Tasks, shielded

__all__ = [
    "Clock",
    "Disk",
    "Entropy",
    "FileLock",
    "Listener",
    "Network",
    "SystemClock",
    "SystemEntropy",
    "SystemNetwork",
    "Tasks",
    "shielded",
]
