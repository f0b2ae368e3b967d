"""Numba keeps compiled functions until their own file changes. What a file compiles in from another one must not become
stale, so the file states a digest of the other."""

import hashlib
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from numba.core.dispatcher import Dispatcher

import qccf.learning.fast_convolution
import qccf.quantization


def modules() -> Iterator[ModuleType]:
    for package in (qccf.learning.fast_convolution, qccf.quantization):
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            yield importlib.import_module(found.name)


def compiled_in(module: ModuleType) -> set[str]:
    """The other modules whose compiled functions the kept functions of a module call."""
    found = set()
    for one in vars(module).values():
        if isinstance(one, Dispatcher) and one.py_func.__module__ == module.__name__:
            used = [one.py_func.__globals__.get(name) for name in one.py_func.__code__.co_names]
            found |= {other.py_func.__module__ for other in used if isinstance(other, Dispatcher)}
    return found - {module.__name__}


def digest_of(name: str) -> str:
    return hashlib.sha256(Path(str(importlib.import_module(name).__file__)).read_bytes()).hexdigest()[:16]


@pytest.mark.parametrize("module", list(modules()), ids=lambda one: one.__name__)
def test_what_is_compiled_in_from_another_file_is_stated(module: ModuleType) -> None:
    stated = getattr(module, "COMPILED_IN", {})
    assert set(stated) == compiled_in(module)
    for name, digest in stated.items():
        assert digest == digest_of(name), f"{name} has changed: state its digest in COMPILED_IN of {module.__name__}"


def test_the_search_finds_them() -> None:
    assert any(compiled_in(module) for module in modules())
