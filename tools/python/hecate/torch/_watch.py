"""Time without what other processes took: Linux counts how long a thread that could run had no processor."""
import os
import time

_taken_out = True


def own_cores(ranks):
    """Ranks on fewer cores wait for each other: that belongs to the time, and nothing is taken out."""
    global _taken_out
    _taken_out = ranks <= len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else False


def _delay_s():
    """Of the calling thread; 0 where the system does not say."""
    if not _taken_out:
        return 0.0
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


class Watch:
    """watch = Watch(); ..; watch.lap(): seconds since, or since the last lap, without the calling thread's delay."""

    def __init__(self):
        self.start()

    def start(self):
        self.delay = _delay_s()
        self.at = time.perf_counter()

    def lap(self):
        took, delay = self.laps()
        return max(1e-9, took - delay)

    def laps(self):
        """(seconds, those of them without a processor); starts again."""
        took, delay = time.perf_counter() - self.at, _delay_s() - self.delay
        self.start()
        return took, delay


def now():
    """Seconds of the calling thread's clock that stands while the thread has no processor."""
    return time.perf_counter() - _delay_s()
