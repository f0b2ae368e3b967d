"""Seconds per round on the same work: plain PyTorch, Flower's simulation, pfl-research and this project, interleaved.

Run on an idle machine: python -m benchmarks.round_speed [--rounds 2] [--repeats 3] [--envs DIR]

The peers are installed into their own environments under --envs, which are kept. The work is in
benchmarks/peers/work.py.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

PEERS = Path(__file__).parent / "peers"
PACKAGES = {"flower": "flwr[simulation]>=1.41,<1.42", "pfl": "pfl[pytorch]==0.6.0"}


def environment(folder: Path, name: str) -> Path:
    """The Python of a peer's own environment, which is created on first use."""
    python = folder / name / "bin" / "python"
    ready = folder / name / ".ready"
    if not ready.exists():
        print(f"installing {PACKAGES[name]} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / name)], check=True)
        constraints = Path(__file__).parents[1] / "constraints.txt"
        subprocess.run([python, "-m", "pip", "install", "-q", "-c", constraints, "torch"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PACKAGES[name]], check=True)
        ready.touch()
    return python


def measured(command: list[str]) -> dict:
    """The last line that a contestant prints, as JSON."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=PEERS)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return answer if isinstance(answer, dict) else {"seconds": answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="measured rounds per repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--envs", type=Path, default=Path("runs/peer-environments"))
    parser.add_argument("--bf16", action="store_true", help="try qccf with bf16 as well")
    options = parser.parse_args()
    envs, rounds = options.envs.absolute(), str(options.rounds)
    flower, pfl = environment(envs, "flower"), environment(envs, "pfl")
    contestants: dict[str, Callable[[], dict]] = {
        "plain PyTorch, fp32": lambda: measured([sys.executable, "plain_peer.py", rounds]),
        "Flower simulation (Ray), fp32": lambda: measured([str(flower), "flower_peer.py", rounds]),
        "pfl-research, fp32": lambda: measured([str(pfl), "pfl_peer.py", rounds]),
        "qccf, fp32": lambda: measured([sys.executable, "qccf_peer.py", rounds, "fp32"]),
    }
    if options.bf16:
        contestants["qccf, bf16"] = lambda: measured([sys.executable, "qccf_peer.py", rounds, "bf16"])
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    shares: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(options.repeats):
        for name, run in contestants.items():
            answer = run()
            seconds[name] += answer["seconds"]
            if "share_not_training" in answer:
                shares[name].append(answer["share_not_training"])
            print(f"repeat {repeat + 1}: {name}: {answer}", file=sys.stderr, flush=True)
    peer = min(median(seconds["Flower simulation (Ray), fp32"]), median(seconds["pfl-research, fp32"]))
    print("| contestant | median s per round | best | relative to the faster of Flower and pfl | not training |")
    print("|---|---|---|---|---|")
    for name, values in seconds.items():
        share = f"{median(shares[name]):.1%}" if shares[name] else "–"
        print(f"| {name} | {median(values):.2f} | {min(values):.2f} | {median(values) / peer:.2f} × | {share} |")


if __name__ == "__main__":
    main()
