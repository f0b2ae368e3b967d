"""Seconds per round on the same work: plain PyTorch, Flower's simulation, pfl-research and this project, interleaved.

Run on an idle machine: python -m benchmarks.round_speed [--batches 400,40,20,10] [--rounds 2] [--repeats 3]

Batches of 10 to 40 are for `lean`. "The fastest peer" is the fastest of plain PyTorch, Flower and pfl-research. The
last two are installed into their own environments under --envs, which are kept. The work is in
benchmarks/peers/work.py.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

PEERS = Path(__file__).parent / "peers"
FLOWER, PFL = "Flower simulation (Ray), fp32", "pfl-research, fp32"
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


def measured(command: list[str], batch: int) -> dict:
    """The last line that a contestant prints, as JSON."""
    environ = {**os.environ, "BATCH": str(batch)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=PEERS, env=environ)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return answer if isinstance(answer, dict) else {"seconds": answer}


def contestants(envs: Path, rounds: int, *, bf16: bool, installed: bool) -> dict[str, list[str]]:
    """The command of each contestant; without installed peers, those that need no environment of their own."""
    count, mine = str(rounds), [sys.executable, "qccf_peer.py"]
    found = {"plain PyTorch, fp32": [sys.executable, "plain_peer.py", count]}
    if installed:
        found[FLOWER] = [str(environment(envs, "flower")), "flower_peer.py", count]
        found[PFL] = [str(environment(envs, "pfl")), "pfl_peer.py", count]
    found["qccf, fp32"] = [*mine, count, "fp32"]
    if bf16:
        found["qccf, bf16"] = [*mine, count, "bf16"]
    return found


def compared(commands: dict[str, list[str]], batch: int, repeats: int) -> list[str]:
    """Measure one batch size; lines of the table."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    shares: dict[str, list[float]] = {name: [] for name in commands}
    for repeat in range(repeats):
        for name, command in commands.items():
            answer = measured(command, batch)
            seconds[name] += answer["seconds"]
            if "share_not_training" in answer:
                shares[name].append(answer["share_not_training"])
            print(f"batch {batch}, repeat {repeat + 1}: {name}: {answer}", file=sys.stderr, flush=True)
    fastest = min(median(values) for name, values in seconds.items() if not name.startswith("qccf"))
    lines = []
    for name, values in seconds.items():
        share = f"{median(shares[name]):.1%}" if shares[name] else "–"
        relative = f"{median(values) / fastest:.2f} ×"
        lines.append(f"| {batch} | {name} | {median(values):.2f} | {min(values):.2f} | {relative} | {share} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", default="400,40,20,10", metavar="400,40,…", help="each divides 1,200")
    parser.add_argument("--rounds", type=int, default=2, help="measured rounds per repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--envs", type=Path, default=Path("runs/peer-environments"))
    parser.add_argument("--bf16", action="store_true", help="try qccf with bf16 as well")
    parser.add_argument("--no-peers", action="store_true", help="only plain PyTorch and qccf, with nothing to install")
    options = parser.parse_args()
    installed = not options.no_peers
    commands = contestants(options.envs.absolute(), options.rounds, bf16=options.bf16, installed=installed)
    print("| batch | contestant | median s per round | best | relative to the fastest peer | not training |")
    print("|---|---|---|---|---|---|", flush=True)
    for batch in map(int, options.batches.split(",")):
        print("\n".join(compared(commands, batch, options.repeats)), flush=True)


if __name__ == "__main__":
    main()
