"""The package as a whole: what an import loads, the public names, files written whole, the version."""

import subprocess
import sys
from pathlib import Path

import pytest

import qccf.flower
from qccf.core.files import write_text_whole, write_whole

HEAVY = ("torch", "flwr", "ray", "matplotlib", "plotly", "pandas", "scipy", "pydantic")


def test_import_is_light() -> None:
    code = f"import sys, qccf; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_deciding_needs_only_numpy_and_scipy() -> None:
    code = (
        "import sys, qccf; qccf.solve_round, qccf.RoundProblem, qccf.settle; import qccf.policies.principle;"
        "print([m for m in ('torch', 'flwr', 'ray', 'matplotlib', 'pydantic', 'rich') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_flower_client_loads_only_its_own_part() -> None:
    """Where it is deployed, its process lives for one message."""
    heavy = ("torch", "pandas", "scipy")
    code = f"import sys, qccf.flower; qccf.flower.quantize; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from qccf.cli.main import parser; assert 'decide' in parser().format_help();"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_public_names() -> None:
    """A name that is added or removed is a change for users: it belongs in CHANGELOG.md and docs/api.md."""
    assert set(qccf.__all__) == {
        "Certificate", "Constants", "Dataset", "Decision", "Observation", "Outcome", "POLICIES", "Policy", "QccfError",
        "RoundProblem", "Run", "Runs", "Scenario", "Statistics", "__version__", "build_policy", "build_world",
        "compare", "load_run", "load_runs", "load_scenario", "plan", "report", "settle", "simulate", "solve_round",
    }  # fmt: skip
    assert set(qccf.flower.__all__) == {
        "FederationError", "MeasuredRates", "Meter", "QccfStrategy", "RateSource", "SimulatedRates", "client_app",
        "quantize", "server_app",
    }  # fmt: skip


def test_public_names_load() -> None:
    for name in qccf.__all__:
        assert getattr(qccf, name) is not None
    assert "solve_round" in dir(qccf)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = qccf.nothing_like_it


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_text_whole(path, "first")
    assert path.read_text() == "first"

    def fails(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError):
        write_whole(path, fails)
    assert path.read_text() == "first"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


def test_version_and_no_command() -> None:
    assert (
        qccf.__version__
        in subprocess.run([sys.executable, "-m", "qccf", "--version"], capture_output=True, text=True).stdout
    )
    bare = subprocess.run([sys.executable, "-m", "qccf"], capture_output=True, text=True)
    assert bare.returncode == 0
    assert bare.stdout.startswith("Usage: qccf COMMAND")
