"""Decisions per second of the service, its delay over the bare library, and its memory.

Run: python -m benchmarks.serve [--seconds S] [--requests N] [--workers W] [--quick]
Starts `qccf serve` on a free port and asks for the same decision again and again over 1, 8 and 32 connections. The
library decides the same problem in this process in turn with the service, alone and with reading and writing JSON.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from qccf.core.plain_json import to_json
from qccf.settings.problem import (
    CONSTANTS,
    PAPERS_CONSTANTS,
    decide_problem,
    decision_to_json,
    parse_json,
    parse_problem,
)
from support.problems import typical_world

CONNECTIONS = (1, 8, 32)
SIZES = ((10, 10), (100, 50), (1000, 100))
SAMPLES = 11


def problem_text(clients: int, channels: int) -> bytes:
    """A round of the `femnist` preset in the default form, as JSON."""
    scenario, world, statistics = typical_world(clients, channels)
    constants = scenario.constants()
    names = ("dataset_sizes", "gradient_norms_sq", "weight_ranges")
    tree = {
        "rates_bps": world.observe(0, statistics).rates_bps.tolist(),
        **{name: getattr(statistics, name).tolist() for name in names},
        "constants": {name: getattr(constants, name) for name in CONSTANTS if name not in PAPERS_CONSTANTS},
    }
    return json.dumps(tree).encode()


@contextmanager
def service(workers: int) -> Iterator[tuple[str, int, int]]:
    """Host, port and process of a running service."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "qccf", "serve", "--port", "0", "--runs", folder, "--workers", str(workers)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        found = re.search(r"(http://[\w.:]+)/", process.stdout.readline())
        assert found is not None
        address = urlsplit(found[1])
        try:
            yield str(address.hostname), int(address.port or 0), process.pid
        finally:
            process.terminate()
            process.wait()


async def asked(
    host: str, port: int, body: bytes, connections: int, until: Callable[[int], bool]
) -> tuple[list[float], int]:
    """Seconds of each request, and the number of failed ones; `until` gets the number of requests so far."""
    head = f"POST /v1/decide HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    times: list[float] = []
    failures = 0

    async def connection() -> None:
        nonlocal failures
        reader, writer = await asyncio.open_connection(host, port, limit=2**24)
        while not until(len(times)):
            started = time.perf_counter()
            writer.write(request)
            await writer.drain()
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", answer)
            assert length is not None
            await reader.readexactly(int(length[1]))
            times.append(time.perf_counter() - started)
            failures += not answer.startswith(b"HTTP/1.1 200")
        writer.close()

    await asyncio.gather(*(connection() for _ in range(connections)))
    return times, failures


class Library(NamedTuple):
    """Of each decision in this process: seconds alone, seconds with JSON, and seconds of CPU with JSON."""

    bare_s: list[float]
    whole_s: list[float]
    cpu_s: list[float]


def library_times(body: bytes, count: int) -> Library:
    """Decide the problem some times, each time from its text to the text of the answer."""
    times = Library([], [], [])
    for _ in range(count):
        started, busy = time.perf_counter(), time.process_time()
        problem = parse_problem(parse_json(body, "the body"))
        read = time.perf_counter()
        decision = decide_problem(problem)
        decided = time.perf_counter()
        to_json(decision_to_json(problem, decision))
        times.bare_s.append(decided - read)
        times.whole_s.append(time.perf_counter() - started)
        times.cpu_s.append(time.process_time() - busy)
    return times


def speed(host: str, port: int, process: int, sizes: tuple[tuple[int, int], ...], seconds: float) -> None:
    heads = (
        "clients × channels", "connections", "decisions/s", "p50", "p99", "failed", "library p50", "with JSON",
        "p50 over library", "CPU per decision", "library's CPU",
    )  # fmt: skip
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for clients, channels in sizes:
        body = problem_text(clients, channels)
        library_times(body, 2)
        for connections in CONNECTIONS:
            asyncio.run(asked(host, port, body, connections, lambda done: done >= 8))  # warm
            own = library_times(body, SAMPLES)
            begun, busy_s = time.perf_counter(), cpu_seconds(process)
            ends = begun + seconds
            times, failed = asyncio.run(asked(host, port, body, connections, lambda _, e=ends: time.perf_counter() > e))
            rate = len(times) / (time.perf_counter() - begun)
            busy_s = (cpu_seconds(process) - busy_s) / len(times)
            own = Library(*(first + more for first, more in zip(own, library_times(body, SAMPLES), strict=True)))
            measured = ((times, 0.5), (times, 0.99), (own.bare_s, 0.5), (own.whole_s, 0.5), (own.cpu_s, 0.5))
            p50, p99, bare, whole, cpu = (1e3 * float(np.quantile(values, share)) for values, share in measured)
            print(
                f"| {clients:,} × {channels} | {connections} | {rate:,.0f} | {p50:.1f} ms | {p99:.1f} ms | {failed} | "
                f"{bare:.1f} ms | {whole:.1f} ms | {p50 - bare:+.1f} ms | {1e3 * busy_s:.1f} ms | {cpu:.1f} ms |",
                flush=True,
            )


def family(process: int) -> Iterator[dict[str, str]]:
    """The status of a process and of its children."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if process in (int(fields["Pid"]), int(fields["PPid"])):
            yield fields


def cpu_seconds(process: int) -> float:
    """CPU time of a process and its children so far."""
    ticks = 0
    for fields in family(process):
        stat = Path(f"/proc/{int(fields['Pid'])}/stat").read_text().rpartition(")")[2].split()
        ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mib(process: int) -> float:
    """Resident memory of a process and its children."""
    return sum(int(fields.get("VmRSS", "0 kB").split()[0]) for fields in family(process)) / 1024


def memory(host: str, port: int, process: int, requests: int) -> None:
    print(f"\nMemory of the service and its processes over {requests:,} decisions of 10 × 10, 8 connections:\n")
    print("| requests | memory | failed |")
    print("|---|---|---|")
    body = problem_text(10, 10)
    part = max(1, requests // 10)
    for k in range(10):
        _, failed = asyncio.run(asked(host, port, body, 8, lambda done: done >= part))
        print(f"| {(k + 1) * part:,} | {memory_mib(process):.0f} MiB | {failed} |", flush=True)


def plan_delay(host: str, port: int) -> None:
    """What somebody who moves a slider of the planner's page waits for."""
    import httpx

    times = []
    for k in range(5):
        settings = {"federation.rounds": 30, "radio.gain_db": float(k)}
        started = time.perf_counter()
        httpx.post(
            f"http://{host}:{port}/v1/plan", json={"settings": settings, "seeds": 2}, timeout=600
        ).raise_for_status()
        times.append(time.perf_counter() - started)
    print(f"\nA plan of five policies, two cells, 30 rounds (the first numbers of the page): {np.median(times):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each row (default 10)")
    parser.add_argument("--requests", type=int, default=100_000, help="requests of the table of memory")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--quick", action="store_true", help="the smallest problem for a moment, for CI")
    options = parser.parse_args()
    seconds, requests = (0.5, 200) if options.quick else (options.seconds, options.requests)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, {options.workers} processes for decisions, load average at the start {load:.1f}\n")
    with service(options.workers) as (host, port, process):
        speed(host, port, process, SIZES[:1] if options.quick else SIZES, seconds)
        plan_delay(host, port)
        memory(host, port, process, requests)


if __name__ == "__main__":
    main()
