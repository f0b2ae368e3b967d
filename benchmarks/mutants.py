"""Mutation testing: change the code in one place, run the tests that reach it, list the changes that no test notices.

The first call finds out which tests reach which functions. Results are kept in `.mutants`, so that a later call goes on
where this one stopped; a function that has changed is tested again. Survivors that are no fault of the tests are
explained in `benchmarks/mutants.toml`.

Run: python -m benchmarks.mutants [--count 200] [--seconds 3600] [--only control] [--again] [--list]
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.mutations import Mutant, function_digests, functions, mutants

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".mutants"
EXPLAINED = ROOT / "benchmarks" / "mutants.toml"
PARTS = ("control", "devices", "quantization", "rounds", "runtimes/flower/strategy.py")
TESTS = (
    "tests/control", "tests/devices", "tests/quantization", "tests/rounds", "tests/policies", "tests/conformance",
    "tests/runtimes", "tests/paper/test_errata.py", "tests/cli/test_folders.py",
)  # fmt: skip
COPIED = ("src", "tests", "support", "benchmarks", "examples", "docs", "pyproject.toml", "README.md")
PRELOADED = ("numpy", "scipy.optimize", "scipy.stats", "pandas", "torch", "numba", "pydantic", "pytest")
UNMARKED = "not slow and not deployment and not browser"
FIRST_TESTS_S = 20.0
"""The shortest tests, up to this time, run first; the others only if these notice nothing."""
OUTPUT = "output.txt"
KERNELS = ("kernels.py", "entropy_kernels.py")
"""Compiled code: its lines are not seen while tests run, and a change must not be hidden by a cache."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=0, help="a random sample of this many mutants (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--only", default="", help="modules whose path contains this text")
    parser.add_argument("--again", action="store_true", help="test known survivors again")
    parser.add_argument("--known", action="store_true", help="use only the test files that were measured before")
    parser.add_argument("--list", action="store_true", help="only print what is known")
    options = parser.parse_args()
    chosen = [one for one in all_mutants() if options.only in one.module]
    if options.count:
        chosen = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))
    known = read_results()
    if not options.list:
        ends = time.monotonic() + options.seconds
        run_mutants(chosen, known, ends=ends, again=options.again, measure=not options.known)
    return print_results(chosen, known)


def all_mutants() -> list[Mutant]:
    found = []
    for part in PARTS:
        path = ROOT / "src/qccf" / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            found += mutants(str(file.relative_to(ROOT / "src/qccf")), file.read_text(encoding="utf-8"))
    return found


def key_of(mutant: Mutant, digests: dict[str, dict[str, str]]) -> str:
    """The mutant in this version of its function."""
    if mutant.module not in digests:
        source = (ROOT / "src/qccf" / mutant.module).read_text(encoding="utf-8")
        digests[mutant.module] = function_digests(source)
    return f"{mutant.module}|{mutant.function}|{digests[mutant.module][mutant.function]}|{mutant.change}"


def read_results() -> dict[str, str]:
    path = KEPT / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(map(json.loads, lines))


def run_mutants(chosen: Sequence[Mutant], known: dict[str, str], *, ends: float, again: bool, measure: bool) -> None:
    digests: dict[str, dict[str, str]] = {}
    KEPT.mkdir(exist_ok=True)
    for name in PRELOADED:
        __import__(name)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, (KEPT / "results.jsonl").open("a") as results:
        tree = Path(folder)
        copy_tree(tree)
        reach = read_reach(tree, ends if measure else 0.0)
        left = [one for one in chosen if known.get(key_of(one, digests)) in ((None, "survived") if again else (None,))]
        for done, mutant in enumerate(left):
            if time.monotonic() > ends:
                print(f"stopped: {len(left) - done} mutants left; the same command goes on")
                return
            outcome = tested(mutant, tree, reach)
            known[key_of(mutant, digests)] = outcome
            results.write(json.dumps([key_of(mutant, digests), outcome]) + "\n")
            results.flush()
            print(f"{done + 1}/{len(left)} {outcome}: {mutant.name}", flush=True)


def copy_tree(tree: Path) -> None:
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        source = ROOT / name
        shutil.copytree(source, tree / name, ignore=ignored) if source.is_dir() else shutil.copy2(source, tree / name)


def tested(mutant: Mutant, tree: Path, reach: dict[str, Any]) -> str:
    """killed, timeout, survived or unreached."""
    file = tree / "src/qccf" / mutant.module
    whole = file.read_text(encoding="utf-8")
    compiled = Path(mutant.module).name in KERNELS
    try:
        file.write_text(mutant.source, encoding="utf-8")
        outcome = "unreached"
        for tests, expected_s in selections(mutant, reach, all_of_module=compiled):
            status = pytest_in_child(["-x", *tests], tree, limit_s=60.0 + 10.0 * expected_s, fresh_cache=compiled)
            if status != 0:
                return "timeout" if status is None else "killed"
            outcome = "survived"
        return outcome
    finally:
        file.write_text(whole, encoding="utf-8")


def selections(mutant: Mutant, reach: dict[str, Any], *, all_of_module: bool) -> Iterator[tuple[list[str], float]]:
    """The tests that reach a mutant, the quick ones first."""
    everything = all_of_module or not mutant.function
    if all_of_module:
        found = {test: one["seconds"] for test, one in reach.items() if "quantization" in test}
    else:
        found = {
            test: one["seconds"]
            for test, one in reach.items()
            if mutant.module in one["functions"] and (everything or mutant.function in one["functions"][mutant.module])
        }
    first: list[str] = []
    total_s = 0.0
    for test in sorted(found, key=found.__getitem__):
        if first and total_s + found[test] > FIRST_TESTS_S:
            break
        first.append(test)
        total_s += found[test]
    rest = [test for test in found if test not in first]
    if first:
        yield first, total_s
    if rest:
        yield rest, sum(found[test] for test in rest)


def read_reach(tree: Path, ends: float) -> dict[str, Any]:
    """The functions that each test calls, and its time; of test files that have changed it is measured again."""
    reach: dict[str, Any] = {}
    folder = KEPT / "reach"
    folder.mkdir(exist_ok=True)
    files = [
        file
        for name in TESTS
        for file in ([tree / name] if name.endswith(".py") else sorted((tree / name).rglob("test_*.py")))
    ]
    for file in files:
        name = str(file.relative_to(tree))
        kept = folder / f"{hashlib.sha256(name.encode() + file.read_bytes()).hexdigest()[:24]}.json"
        if not kept.exists():
            if time.monotonic() > ends:
                continue
            print(f"which functions does {name} reach?", flush=True)
            pytest_in_child([name], tree, limit_s=3600.0, recorded=kept)
        if kept.exists():
            reach |= json.loads(kept.read_text(encoding="utf-8"))
        else:
            print(f"{name} fails without any change:\n{(tree / OUTPUT).read_text(encoding='utf-8')[-2000:]}")
    return reach


def pytest_in_child(
    arguments: list[str], tree: Path, *, limit_s: float, fresh_cache: bool = False, recorded: Path | None = None
) -> int | None:
    """The exit status of pytest in a copy of this process, which has loaded the libraries; None after the limit."""
    child = os.fork()
    if not child:
        os.setsid()
        status = 70
        try:
            status = _child(arguments, tree, fresh_cache, recorded)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _child(arguments: list[str], tree: Path, fresh_cache: bool, recorded: Path | None) -> int:
    import numba
    import pytest

    for name in [name for name in sys.modules if name.partition(".")[0] in ("support", "benchmarks")]:
        del sys.modules[name]
    ours = {str(ROOT), str(ROOT / "src"), ""}
    sys.path[:] = [str(tree / "src"), str(tree), *(entry for entry in sys.path if entry not in ours)]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    os.chdir(tree)
    numba.config.CACHE_DIR = tempfile.mkdtemp(dir=tree) if fresh_cache else str(tree / "numba")
    output = os.open(tree / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    plugins = [Recorder(tree)] if recorded else []
    status = int(pytest.main(["-q", "-p", "no:cacheprovider", "-m", UNMARKED, *arguments], plugins=plugins))
    if recorded and status in (0, 5):
        recorded.write_text(json.dumps(plugins[0].reach()), encoding="utf-8")
    return status


class Recorder:
    """A plug-in of pytest: the functions that each test calls, and how long it takes."""

    def __init__(self, tree: Path) -> None:
        import coverage

        self._tree = tree
        self._seconds: Counter[str] = Counter()
        self._cover = coverage.Coverage(data_file=None, config_file=False, source=[str(tree / "src/qccf")])
        self._cover.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._cover.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds[report.nodeid] += report.duration

    def reach(self) -> dict[str, Any]:
        self._cover.stop()
        data = self._cover.get_data()
        found: dict[str, Any] = {test: {"seconds": seconds, "functions": {}} for test, seconds in self._seconds.items()}
        package = self._tree / "src/qccf"
        for file in data.measured_files():
            spans = functions(Path(file).read_text(encoding="utf-8"))
            owner = {line: name for name, (first, last) in spans.items() for line in range(first + 1, last + 1)}
            module = str(Path(file).relative_to(package))
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    if test in found and line in owner:
                        called = found[test]["functions"].setdefault(module, [])
                        if owner[line] not in called:
                            called.append(owner[line])
        return found


def explanations() -> dict[tuple[str, str, str], str]:
    """Why a survivor is no fault of the tests, by module, function and change."""
    if not EXPLAINED.exists():
        return {}
    tree = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    return {(one["module"], one["function"], change): one["why"] for one in tree["mutant"] for change in one["changes"]}


def print_results(chosen: Sequence[Mutant], known: dict[str, str]) -> int:
    """A table by part, then the survivors without an explanation; returns 1 if there are any."""
    explained = explanations()
    digests: dict[str, dict[str, str]] = {}
    rows: dict[str, Counter[str]] = {}
    survivors = []
    for mutant in chosen:
        outcome = known.get(key_of(mutant, digests), "left")
        if outcome in ("survived", "unreached"):
            why = explained.get((mutant.module, mutant.function, mutant.change))
            survivors += [] if why else [f"{outcome}: {mutant.name}"]
            outcome = "explained" if why else outcome
        part = next(part for part in PARTS if mutant.module.startswith(part))
        rows.setdefault(part, Counter())[outcome] += 1
    columns = ("killed", "timeout", "explained", "survived", "unreached", "left")
    print(f"\n| part | {' | '.join(columns)} | killed or explained |")
    print(f"|---|{'---|' * len(columns)}---|")
    rows["all"] = sum(rows.values(), Counter())
    for part, counts in rows.items():
        good = counts["killed"] + counts["timeout"] + counts["explained"]
        tried = sum(counts.values()) - counts["left"]
        share = f"{good / tried:.1%}" if tried else ""
        print(f"| {part} | {' | '.join(str(counts[column]) for column in columns)} | {share} |")
    print("\n" + "\n".join(survivors) if survivors else "\nno survivor without an explanation")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
