"""Whose fault an unexpected error is."""

import sys
from pathlib import Path

import pytest

from qccf.core.failures import place, plugin_failure, reason
from qccf.core.registry import Registry

MODULE = """
from beside_{name} import half

class Policy:
    def decide(self):
        return half(0)

class Other:
    def decide(self):
        return [][1]

def codec():
    return {{}}["key"]
"""
BESIDE = """def half(count):
    return 1 / count
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch, request) -> str:
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name=name))
    (tmp_path / f"beside_{name}.py").write_text(BESIDE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("qccf.core.registry._LOADED", {})
    yield name
    for one in (name, f"beside_{name}"):
        sys.modules.pop(one, None)


def caught(function) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("no error")


def test_a_failure_names_the_plugin_the_method_that_was_called_and_the_line(module: str) -> None:
    policies, codecs = Registry("policy", {}), Registry("codec", {})
    policy, other = (policies.find(f"{module}:{name}") for name in ("Policy", "Other"))
    codec = codecs.find(f"{module}:codec")
    assert plugin_failure(caught(policy().decide)) == (
        f"policy '{module}:Policy' failed in decide (beside_{module}.py, line 2): ZeroDivisionError: division by zero"
    )
    assert plugin_failure(caught(other().decide)) == (
        f"policy '{module}:Other' failed in decide ({module}.py, line 10): IndexError: list index out of range"
    )
    assert (
        plugin_failure(caught(codec))
        == f"codec '{module}:codec' failed in codec ({module}.py, line 13): KeyError: 'key'"
    )


def test_an_error_elsewhere_is_no_failure_of_a_plugin(module: str) -> None:
    Registry("policy", {}).find(f"{module}:Policy")
    error = caught(lambda: int("x"))
    assert plugin_failure(error) is None
    assert place(error).startswith("test_failures.py, line ")


def test_a_reason_is_the_first_line() -> None:
    assert reason(ValueError("first.\nsecond")) == "ValueError: first"
    assert reason(KeyboardInterrupt()) == "KeyboardInterrupt"
