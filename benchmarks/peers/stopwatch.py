"""Measure how long each round trains."""

import time

from qccf.rounds import uplink
from qccf.runtimes.clients import Clients


class Stopwatch:
    """Training time of each round, without the time that the threads spend on encoding."""

    def __init__(self) -> None:
        self._trains: list[float] = []
        self._codes: list[float] = []
        train, encode = Clients.train, uplink.encode

        def timed_train(clients, *arguments):
            started = time.perf_counter()
            self._codes.append(0.0)
            self._workers = clients.workers
            result = train(clients, *arguments)
            self._trains.append(time.perf_counter() - started)
            return result

        def timed_encode(*arguments, **options):
            started = time.perf_counter()
            result = encode(*arguments, **options)
            self._codes[-1] += time.perf_counter() - started
            return result

        Clients.train, uplink.encode = timed_train, timed_encode

    def training(self) -> list[float]:
        return [wall - coding / self._workers for wall, coding in zip(self._trains, self._codes, strict=True)]
