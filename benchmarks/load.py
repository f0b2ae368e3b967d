"""Two load tests: many clients in one simulated federation, and many SuperNodes that come and go on loopback.

`simulated` trains a tiny model on random noise with 10,000 clients, 500 of which take part in each round, in a run
folder with a checkpoint after every tenth round, and prints the memory of the process as rounds pass. `flower` starts a
SuperLink with TLS and 30 SuperNodes, of which 10 take part in each round, because each message starts a process; in
every ten rounds a fifth of the nodes is killed and replaced by nodes with new keys, one at a time.

Run: python -m benchmarks.load simulated [--clients 10000] [--participants 500] [--rounds 100]
     python -m benchmarks.load flower [--nodes 30] [--rounds 50] [--churn 0.2] [--channels 10]
"""

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from qccf.core.errors import LoopbackError
from qccf.learning.datasets import Dataset
from qccf.rounds.run_folder import read_run
from qccf.runtimes.flower.loopback import IN_MEMORY, Loopback
from qccf.runtimes.simulator import RoundEvent, simulate
from tests.helpers.tiny import tiny_scenario

SAMPLES = 8
APP = Path(__file__).parents[1] / "tests" / "helpers" / "fab"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FIRST = 10
"""Rounds after which memory is compared with that of the end: the ledger, libraries and caches are there by then."""
PAUSE_S = 20.0
"""Seconds between two kills."""
STUCK_S = 900.0
"""A federation without a new round for this long is given up."""
POLL_S = "2.0"
"""Seconds between two questions of a SuperNode's executor for work."""
RUN_S = 5400.0


def memory_mib() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES / 2**20


def noise(clients: int) -> Dataset:
    """Random images, because only time and memory are measured."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (clients * SAMPLES + 500, 8, 8), dtype=np.uint8)
    labels = rng.integers(0, 10, len(images))
    train, names = slice(0, clients * SAMPLES), tuple("0123456789")
    return Dataset("noise", images[train], labels[train], None, images[-500:], labels[-500:], names, True, "noise")


def simulated(options: argparse.Namespace) -> int:
    """A large simulated federation; 1 if its memory grows beyond what its tables need."""
    scenario = tiny_scenario(
        f"federation.num_clients={options.clients}",
        f"radio.num_channels={options.participants}",
        f"federation.rounds={options.rounds}",
        f"data.dataset_size_mean={SAMPLES}",
        "data.dataset_size_std=0.0",
        f"data.dataset_size_min={SAMPLES}",
        "data.partition=iid",
        "evaluation.every=10",
        "learning.local_updates=1",
        "learning.local_epochs=1",
        "codec.name=update+entropy",
        "execution.workers=1",
        "execution.checkpoint_every=10",
    )
    seen: list[float] = []
    packed: list[int] = []
    began, used = time.monotonic(), time.process_time()

    def note(event: RoundEvent) -> None:
        seen.append(memory_mib())
        packed.append(event.ledger.clients.nbytes + event.ledger.statistics.nbytes)
        n, row = len(event.ledger), event.ledger.last
        if n == 1 or n % 10 == 0:
            print(f"round {n}: {row['arrived']} arrived, {event.round_seconds:.1f} s, {seen[-1]:.0f} MiB", flush=True)

    with tempfile.TemporaryDirectory() as name:
        run = simulate(scenario, out=Path(name) / "run", dataset=noise(options.clients), callbacks=[note])
        ended, cpu = time.monotonic() - began, time.process_time() - used
        sizes = {path.name: path.stat().st_size / 2**20 for path in sorted((Path(name) / "run").rglob("*.*"))}
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took_part = float(run.round_columns["participants"].mean())
    first = min(FIRST, len(seen)) - 1
    rounds = max(len(seen) - 1 - first, 1)
    grown, packed_mib = (seen[-1] - seen[first]) / rounds, (packed[-1] - packed[first]) / rounds / 2**20
    tables = [run.round_columns, run.client_columns, run.statistics_columns]
    table_mib = sum(column.nbytes for columns in tables for column in columns.values()) / 2**20 / options.rounds
    print(f"{options.clients} clients, {took_part:.0f} take part, {options.rounds} rounds")
    print(f"{ended:.0f} s, {cpu:.0f} s of CPU time")
    print(f"memory: at most {max(seen):.0f} MiB after a round, {peak_mib:.0f} MiB when the tables are written")
    print(f"from round {FIRST} on memory grows by {grown:.3f} MiB per round")
    print(f"the packed tables grow by {packed_mib:.3f} MiB, {packed_mib * 2**20 / took_part:.0f} bytes per participant")
    print(f"unpacked they have {table_mib:.2f} MiB per round")
    print("files in MiB: " + ", ".join(f"{name} {size:.1f}" for name, size in sizes.items()))
    return int(grown > 2.0 * packed_mib + 0.5)


def flower(options: argparse.Namespace) -> int:
    """A federation on loopback with nodes that are killed and replaced; 1 if it does not finish."""
    os.environ["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = POLL_S  # 30 nodes that ask five times a second fill a core
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the nodes are stopped, too
    chance, killed, began = random.Random(0), 0, time.monotonic()
    wanted = round(options.churn * options.nodes * options.rounds / options.every)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        summary = folder / "run" / "summary.json"
        with Loopback(folder / "federation", options.nodes, app=APP, database=IN_MEMORY) as federation:
            print(f"{options.nodes} SuperNodes started after {time.monotonic() - began:.0f} s", flush=True)
            settings = f"radio.num_channels={options.channels} radio.bandwidth_hz=1e6 device.cycles_per_sample=1e4"
            config = {"rounds": options.rounds, "num-clients": options.nodes, "out": folder / "run"}
            federation.run({**config, "settings": settings, "timeout": options.timeout})
            rounds, last = 0, time.monotonic()
            while not summary.exists() and time.monotonic() - began < RUN_S and time.monotonic() - last < STUCK_S:
                time.sleep(PAUSE_S)
                done = rounds_done(folder / "run")
                rounds, last = (done, time.monotonic()) if done > rounds else (rounds, last)
                if rounds and killed < wanted * rounds / options.rounds and not summary.exists():
                    killed += replaced(federation, chance.randrange(options.nodes))
                print(f"{time.monotonic() - began:.0f} s: {rounds} rounds, {killed} nodes replaced", flush=True)
            if not summary.exists():
                for log in ("run", "link"):
                    print(f"--- {log}\n{federation.log_text(log)[-3000:]}")
                print("NOT finished")
                return 1
        table = read_run(folder / "run").round_columns
    asked, arrived = table["participants"], table["arrived"]
    print(f"{options.nodes} SuperNodes, {len(arrived)} rounds, {killed} nodes killed and replaced")
    print(f"{arrived.mean():.1f} of {asked.mean():.1f} uploads per round arrived, at least {arrived.min()}")
    print(
        f"{int((asked - arrived).sum())} of {int(asked.sum())} uploads missed, {int((arrived == 0).sum())} empty rounds"
    )
    print(f"{time.monotonic() - began:.0f} s, finished")
    return int(len(arrived) != options.rounds)


def rounds_done(folder: Path) -> int:
    """The number of rounds that a checkpoint holds."""
    return max((int(path.stem[-6:]) for path in (folder / "checkpoints").glob("round-*.npz")), default=0)


def replaced(federation: Loopback, number: int) -> int:
    """Kill a node and start one with a new key for the same client; 0 if it has not connected yet."""
    try:
        federation.stop(f"node{number}", hard=True)
        federation.unregister(number)
    except LoopbackError:
        federation.start_node(number)
        return 0
    federation.register(number)
    federation.start_node(number)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    many = kinds.add_parser("simulated")
    many.add_argument("--clients", type=int, default=10_000)
    many.add_argument("--participants", type=int, default=500)
    many.add_argument("--rounds", type=int, default=100)
    many.set_defaults(call=simulated)
    nodes = kinds.add_parser("flower")
    nodes.add_argument("--nodes", type=int, default=30)
    nodes.add_argument("--rounds", type=int, default=50)
    nodes.add_argument(
        "--churn", type=float, default=0.2, help="share of nodes that is replaced in each span of rounds"
    )
    nodes.add_argument("--every", type=int, default=10, help="rounds of such a span")
    nodes.add_argument("--channels", type=int, default=10, help="clients that can take part in a round")
    nodes.add_argument("--timeout", type=float, default=180.0, help="seconds for which a round waits for replies")
    nodes.set_defaults(call=flower)
    options = parser.parse_args()
    result: int = options.call(options)
    return result


if __name__ == "__main__":
    sys.exit(main())
