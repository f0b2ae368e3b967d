"""Every benchmark can be imported, so that none is left behind when code moves."""

import importlib
from pathlib import Path

import pytest

import benchmarks

NAMES = sorted(path.stem for path in Path(next(iter(benchmarks.__path__))).glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    assert hasattr(importlib.import_module(f"benchmarks.{name}"), "main")
