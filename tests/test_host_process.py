"""The library leaves the process that uses it as it found it: no lasting global settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUG_IN = """
from qccf.policies.qccf import Qccf

class Mine(Qccf):
    pass
"""
PROGRAM = """
import json, locale, logging, os, random, signal, sys, warnings
from pathlib import Path

# Packages that change the process when they are imported: their changes are not ours.
import constriction, filelock, jinja2, markdown_it, matplotlib, numba, numpy, pandas, PIL, pyarrow.parquet, torch
import matplotlib.figure, rich.console, rich.progress, scipy.optimize, torch.utils.data, xxhash
import torch._dynamo, torch._inductor.runtime.cache_dir_utils  # torch loads them for random layers


def host():
    return {
        "sys.path": list(sys.path),
        "threads of torch": torch.get_num_threads(),
        "number type of torch": str(torch.get_default_dtype()),
        "gradients of torch": torch.is_grad_enabled(),
        "bf16 of torch": torch.is_autocast_enabled("cpu"),
        "random numbers of torch": torch.random.get_rng_state().tolist(),
        "random numbers of NumPy": str(numpy.random.get_state()),
        "random numbers of Python": str(random.getstate()),
        "errors of NumPy": numpy.geterr(),
        "printing of NumPy": str(numpy.get_printoptions()),
        "threads of numba": numba.get_num_threads(),
        "rcParams": {key: str(value) for key, value in matplotlib.rcParams.items()},
        "backend": matplotlib.get_backend(auto_select=False),
        "signals": {one.name: str(signal.getsignal(one)) for one in signal.valid_signals() if hasattr(one, "name")},
        "environment": dict(os.environ),
        "warnings": [str(one) for one in warnings.filters],
        "folder": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "logging": [logging.getLogger().level, len(logging.getLogger().handlers)],
        "hooks": [str(sys.excepthook), str(sys.stdout), str(sys.stderr)],
    }


before = host()

import qccf
from qccf.cli.main import main
from tests.helpers.tiny import tiny_dataset, tiny_scenario

scenario = tiny_scenario("federation.rounds=2", "execution.workers=2")
qccf.plan(scenario, policies=["qccf", "plug_in:Mine"], seeds=1)
qccf.simulate(scenario, policy="plug_in:Mine", out=Path("run"), dataset=tiny_dataset())
assert main(["plan", "quick", "--rounds", "2", "--seeds", "1", "--out", "plan"]) == 0
assert main(["report", "run", "--out", "report.html"]) == 0
assert Path("plan/plan.png").exists() and Path("report.html").exists()

after = host()
changed = {}
for key, value in before.items():
    for part in value if isinstance(value, dict) else [None]:
        old, new = (one if part is None else one.get(part) for one in (value, after[key]))
        if old != new:
            changed[f"{key} {part or ''}"] = f"{old} -> {new}"[:300]
    if isinstance(value, dict) and after[key].keys() - value.keys():
        changed[key] = str(after[key].keys() - value.keys())
print("CHANGED " + json.dumps(changed))
"""


@pytest.mark.slow
def test_nothing_global_has_changed(tmp_path: Path) -> None:
    """The script is in another folder than the plug-in, so that the current folder is not on `sys.path`."""
    (tmp_path / "script").mkdir()
    script = tmp_path / "script" / "program.py"
    script.write_text(PROGRAM)
    (tmp_path / "plug_in.py").write_text(PLUG_IN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("CHANGED "))
    assert json.loads(line.removeprefix("CHANGED ")) == {}
