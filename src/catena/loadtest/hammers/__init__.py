"""Clients that hammer a cluster, each in a process of its own: `python -m catena.loadtest.hammers`.

    orchestrator                              hammer
       | ---- one line: its order ------------> |    connects
       | <--- {"ready": true} ----------------- |
       | ---- {"start": when} ----------------> |    sends, or reads, from then on
       | <--- an Interval, now and then ------- |
       | ---- {"stop": true}, or end of file -> |    stops at once; a producer waits for what it has sent
       | <--- {"done": true} ------------------ |

Times are of the host's monotonic clock, which all processes of a host share.
"""
