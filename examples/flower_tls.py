"""A federation with TLS and node keys on one machine: make keys, start all processes, train, stop all processes.

python examples/flower_tls.py [ROUNDS] [NODES]
"""

import signal
import sys
import tempfile
from pathlib import Path

import pandas as pd

from qccf.runtimes.flower.loopback import Loopback

SHOWN = ["round", "participants", "arrived", "missed", "mean_bits", "energy_j", "train_loss", "test_accuracy"]


def main(rounds: int = 5, nodes: int = 3) -> int:
    with tempfile.TemporaryDirectory(prefix="qccf-flower-") as folder, Loopback(Path(folder), nodes) as federation:
        print(f"SuperLink on port {federation.port} with TLS, {nodes} registered SuperNodes; training {rounds} rounds…")
        out = Path(folder) / "run"
        federation.run({"set": f"federation.rounds={rounds}", "out": str(out), "num-clients": nodes}).wait()
        if not (out / "summary.json").exists():
            print(federation.log_text("run"), file=sys.stderr)
            return 1
        print(pd.read_parquet(out / "rounds.parquet")[SHOWN].to_string(index=False))
        uploads = pd.read_parquet(out / "clients.parquet").query("arrived")
        print(f"{len(uploads)} uploads of {uploads.payload_bits.mean() / 8e3:.1f} kB on average")
    return 0


if __name__ == "__main__":
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # these signals stop the federation, too
        signal.signal(sign, lambda number, _: sys.exit(128 + number))
    sys.exit(main(*map(int, sys.argv[1:])))
