"""Mutation testing: change the code in one place, run the tests that reach it, list the changes that no test notices.

The first call finds out which tests reach which lines. Results are kept in `.mutants`, so that a later call goes on
where this one stopped; a function that has changed is tested again. Survivors that are no fault of the tests are
explained in `benchmarks/mutants.toml` and left out.

One process loads the libraries, the package and the tests. For each change a copy of this process (fork) gets the
changed function and runs tests until one fails: first the quick ones and those that noticed other changes of the same
function or module. Code that runs when a module is imported is changed in a process that has not imported it yet,
which takes longer.

Run: python -m benchmarks.mutants [--count 200] [--seed 1] [--seconds 3600] [--only control] [--again] [--list]
"""

import argparse
import contextlib
import ctypes
import gc
import hashlib
import importlib
import json
import math
import os
import re
import shutil
import signal
import sys
import time
import tomllib
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core; a copy of a process has none of its threads

from support.mutations import Mutant, function_digests, functions, mutants

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".mutants"
KILLERS = KEPT / "killers.json"
EXPLAINED = ROOT / "benchmarks" / "mutants.toml"
PARTS = ("control", "devices", "quantization", "rounds", "runtimes/flower/strategy.py")
SETTINGS_TEST = "tests/docs/test_site.py::test_documents_made_from_code_are_up_to_date"
"""It states the default and the limits of every setting."""
TESTS = (
    "tests/control", "tests/devices", "tests/quantization", "tests/rounds", "tests/policies", "tests/runtimes",
    "tests/conformance/test_codecs.py", "tests/conformance/test_policies.py", "tests/conformance/test_plugins.py",
    "tests/conformance/test_aggregation_rules.py", "tests/paper/test_errata.py", "tests/settings",
    SETTINGS_TEST,
)  # fmt: skip
COPIED = ("src", "tests", "support", "benchmarks", "examples", "docs", "pyproject.toml", "README.md")
PRELOADED = (
    "numpy", "scipy.optimize", "scipy.stats", "pandas", "pyarrow.parquet", "torch", "numba", "pydantic", "pytest",
    "flwr.server", "flwr.clientapp", "flwr.serverapp",
)  # fmt: skip
UNMARKED = "not slow and not deployment and not browser"
MOST_TESTS_S, MOST_AGAIN_S = 8.0, 60.0
"""The time of the tests for one change, at first and with `--again`. Those least likely to notice it are left out."""
OUTPUT, KILLER, ANEW, REACH = "output.txt", "killer.txt", "anew.json", "reach.json"
KERNELS = ("kernels.py", "entropy_kernels.py")
"""Compiled code: its lines are not seen while tests run, and a change must not be hidden by a cache."""
ALIVE = ("survived", "unreached")
COMPILED_TESTS = ("tests/quantization", "tests/conformance/test_codecs.py")

Record = Callable[[Mutant, str, float], None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=0, help="a random sample, from each part alike (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample and of the order")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="of these, modules whose path contains one of the texts"
    )
    parser.add_argument("--again", action="store_true", help="test known survivors again, with more tests")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files and folders of tests")
    parser.add_argument("--list", action="store_true", help="only print what is known")
    options = parser.parse_args()
    chosen = sample(all_mutants(), options.count, options.seed)
    chosen = [one for one in chosen if any(text in one.module for text in options.only)]
    known = read_results()
    if not options.list:
        ends = time.monotonic() + options.seconds
        run_mutants(chosen, known, ends=ends, again=options.again, tests=options.tests)
    return print_results(chosen, known)


def all_mutants() -> list[Mutant]:
    found = []
    for part in PARTS:
        path = ROOT / "src/qccf" / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            found += mutants(str(file.relative_to(ROOT / "src/qccf")), file.read_text(encoding="utf-8"))
    return found


def part_of(mutant: Mutant) -> str:
    return next(part for part in PARTS if mutant.module.startswith(part))


def sample(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """In an order by chance that new code leaves as it is; with a count the same share of every part, rounded up."""
    order = sorted(found, key=lambda one: hashlib.sha256(f"{seed} {one.place}".encode()).digest())
    if not count:
        return order
    chosen = []
    for part in PARTS:
        of_part = [one for one in order if part_of(one) == part]
        chosen += of_part[: math.ceil(len(of_part) * count / len(found))]
    return chosen


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


def run_mutants(
    chosen: Sequence[Mutant], known: dict[str, str], *, ends: float, again: bool, tests: Sequence[str]
) -> None:
    digests: dict[str, dict[str, str]] = {}
    KEPT.mkdir(exist_ok=True)
    for name in PRELOADED:
        __import__(name)
    explained, wanted = explanations(), (None, *ALIVE) if again else (None,)
    left = [one for one in chosen if known.get(key_of(one, digests)) in wanted and one.words not in explained]
    screen = os.dup(1)

    def record(mutant: Mutant, outcome: str, cpu_s: float) -> None:
        with (KEPT / "results.jsonl").open("a") as results:
            results.write(json.dumps([key_of(mutant, digests), outcome]) + "\n")
        os.write(screen, f"{left.index(mutant) + 1}/{len(left)} {outcome} {cpu_s:.1f} s: {mutant.name}\n".encode())

    tree = KEPT / "tree"
    copy_tree(tree)
    most_s = MOST_AGAIN_S if again else MOST_TESTS_S
    bench = Bench(tree, left, ends, most_s, screen, record)
    if in_copy(lambda: run_pytest(tree, list(tests), bench))[0] != 0:
        sys.exit(f"the tests cannot be loaded:\n{(tree / OUTPUT).read_text(encoding='utf-8')[-2000:]}")
    reach = json.loads((tree / REACH).read_text())
    for number in json.loads((tree / ANEW).read_text()):
        if time.monotonic() > ends:
            break
        record(left[number], *tested_anew(left[number], tree, reach, most_s))
    known |= read_results()


def copy_tree(tree: Path) -> None:
    """The compiled code that Numba has kept there stays."""
    tree.mkdir(exist_ok=True)
    for name in COPIED:
        shutil.rmtree(tree / name, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        source = ROOT / name
        shutil.copytree(source, tree / name, ignore=ignored) if source.is_dir() else shutil.copy2(source, tree / name)


def in_copy(act: Callable[[], int]) -> tuple[int, float]:
    """The exit status of `act` in a copy of this process, and the time of the processor; below 0 after a signal."""
    parent = os.getpid()
    child = os.fork()
    if not child:
        status = 70
        try:
            os.setsid()
            end_with(parent)
            status = act()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status, used = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests started
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def end_with(parent: int) -> None:
    """Linux ends this process when its parent has ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(70)


def run_pytest(tree: Path, arguments: list[str], plugin: Any) -> int:
    """pytest in the copied tree, in this process."""
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
    numba.config.CACHE_DIR = str(tree / "numba")
    redirect(tree)
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "-m", UNMARKED, *arguments], plugins=[plugin]))


def redirect(tree: Path) -> None:
    output = os.open(tree / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)


def run_items(items: Sequence[Any], seconds: Mapping[str, float], tree: Path, grace_s: float) -> int:
    """1 if a test fails, which is named in a file. A test that takes far too long ends this process by a signal."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        expected_s = seconds.get(item.nodeid, 60.0)
        signal.setitimer(signal.ITIMER_PROF, grace_s + 10.0 * expected_s)
        signal.setitimer(signal.ITIMER_REAL, 120.0 + 100.0 * expected_s)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            (tree / KILLER).write_text(item.nodeid, encoding="utf-8")
            return 1
    return 0


def grace_of(mutant: Mutant) -> float:
    """Seconds that a test may take beyond a multiple of its usual time: compiled code is compiled again."""
    return 60.0 if Path(mutant.module).name in KERNELS else 5.0


def outcome_of(status: int) -> str:
    if status in (-signal.SIGPROF, -signal.SIGALRM):
        return "timeout"
    return "killed" if status else "survived"


class Bench:
    """A plug-in of pytest: it finds out which lines the tests reach, then tests mutants."""

    def __init__(
        self, tree: Path, left: Sequence[Mutant], ends: float, most_s: float, screen: int, record: Record
    ) -> None:
        self._tree, self._left, self._ends = tree, left, ends
        self._most_s, self._screen, self._record = most_s, screen, record

    def pytest_runtestloop(self, session: Any) -> bool:
        places = functions_in_memory(self._tree)
        gc.freeze()  # copies share the memory of what is loaded
        reach = measured_reach(self._tree, session.items, self._screen)
        items = {item.nodeid: item for item in session.items}
        killers = read_killers()
        anew = []
        for number, mutant in enumerate(self._left):
            change = change_in_place(mutant, self._tree, places)
            if change is None:
                anew.append(number)
                continue
            if time.monotonic() > self._ends:
                break
            tests = selected(mutant, reach, killers, self._most_s)
            if not tests:
                self._record(mutant, "unreached", 0.0)
                continue
            chosen = [items[test] for test in tests if test in items]
            seconds = {test: reach[test]["seconds"] for test in tests}

            def act(mutant: Mutant = mutant, change: Any = change, chosen: Any = chosen, seconds: Any = seconds) -> int:
                redirect(self._tree)
                change()
                return run_items(chosen, seconds, self._tree, grace_of(mutant))

            with mutant_in_file(mutant, self._tree):
                status, cpu_s = in_copy(act)
            if status == 1:
                for place in (mutant.module, f"{mutant.module}|{mutant.function}"):
                    counts = killers.setdefault(place, Counter())
                    counts[(self._tree / KILLER).read_text(encoding="utf-8")] += 1
                KILLERS.write_text(json.dumps(killers), encoding="utf-8")
            self._record(mutant, outcome_of(status), cpu_s)
        (self._tree / ANEW).write_text(json.dumps(anew))
        return True


def read_killers() -> dict[str, Counter[str]]:
    """How many changes of each function and module the tests have noticed."""
    found = json.loads(KILLERS.read_text(encoding="utf-8")) if KILLERS.exists() else {}
    return {place: Counter(counts) for place, counts in found.items()}


def tested_anew(mutant: Mutant, tree: Path, reach: dict[str, Any], most_s: float) -> tuple[str, float]:
    """The outcome where the package is imported after the change, and the time of the processor."""
    tests = selected(mutant, reach, read_killers(), most_s)
    if not tests:
        return "unreached", 0.0
    seconds = {test: reach[test]["seconds"] for test in tests}

    class Loop:
        def pytest_runtestloop(self, session: Any) -> bool:
            items = {item.nodeid: item for item in session.items}
            os._exit(run_items([items[test] for test in tests], seconds, tree, grace_of(mutant)))

    def act() -> int:
        signal.setitimer(signal.ITIMER_PROF, 60.0)  # to import it
        return run_pytest(tree, sorted({test.partition("::")[0] for test in tests}), Loop())

    with mutant_in_file(mutant, tree):
        status, cpu_s = in_copy(act)
    return outcome_of(status), cpu_s


@contextlib.contextmanager
def mutant_in_file(mutant: Mutant, tree: Path) -> Iterator[None]:
    """For processes that tests start. The time of the file stays because Numba looks at it."""
    file = tree / "src/qccf" / mutant.module
    whole, stamp = file.read_text(encoding="utf-8"), file.stat()
    try:
        file.write_text(mutant.source, encoding="utf-8")
        yield
    finally:
        file.write_text(whole, encoding="utf-8")
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


Places = dict[tuple[str, str], list[FunctionType]]


def functions_in_memory(tree: Path) -> Places:
    """The functions of the package by file and qualified name, however they are decorated."""
    package = str(tree / "src/qccf") + os.sep
    places: Places = {}
    for found in gc.get_objects():
        if type(found) is FunctionType and found.__code__.co_filename.startswith(package):
            places.setdefault((found.__code__.co_filename, found.__code__.co_qualname), []).append(found)
    return places


def change_in_place(mutant: Mutant, tree: Path, places: Places) -> Callable[[], None] | None:
    """What changes a function that is in memory. None if that is not enough: for code that runs during the import,
    such as default values, and for inner functions that were made then."""
    file = str(tree / "src/qccf" / mutant.module)
    inner = f"{mutant.function}.<locals>."
    if not mutant.function or any(path == file and name.startswith(inner) for path, name in places):
        return None
    for changed in _codes(compile(mutant.source, file, "exec")):
        for function in places.get((file, changed.co_qualname), []):
            code = function.__code__
            is_it = changed.co_qualname == mutant.function and changed.co_firstlineno == code.co_firstlineno
            if is_it and changed != code and len(changed.co_freevars) == len(code.co_freevars):
                return partial(_replace, function, changed, compiled=Path(file).name in KERNELS)
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _replace(function: FunctionType, code: CodeType, *, compiled: bool) -> None:
    function.__code__ = code
    if compiled:
        from numba.core.caching import NullCache
        from numba.core.dispatcher import Dispatcher

        for name in KERNELS:
            module = importlib.import_module(f"qccf.quantization.{name.removesuffix('.py')}")
            for dispatcher in (one for one in vars(module).values() if isinstance(one, Dispatcher)):
                assert not dispatcher.overloads, "compiled before the change"
                dispatcher._cache = NullCache()


def selected(mutant: Mutant, reach: dict[str, Any], killers: Mapping[str, Counter[str]], most_s: float) -> list[str]:
    """The tests that reach a mutant, in the order in which one is likely to notice it soon, up to a limit."""
    if Path(mutant.module).name in KERNELS:
        found = [test for test in reach if test.startswith(COMPILED_TESTS)]
    elif mutant.function:
        found = [test for test, one in reach.items() if _reaches(one["lines"], mutant)]
    else:
        users = _users(mutant)
        found = [
            test
            for test, one in reach.items()
            if any(users & {(module, name) for name in reached} for module, reached in one["lines"].items())
            or test == SETTINGS_TEST
        ]
    own, near = (killers.get(place, Counter()) for place in (f"{mutant.module}|{mutant.function}", mutant.module))

    def per_second(test: str) -> float:
        """How many changes it may notice in a second of its time."""
        return float((own[test] + 0.2 * near[test] + 0.02) / (reach[test]["seconds"] + 0.02))

    found.sort(key=per_second, reverse=True)
    most = list(accumulate(reach[test]["seconds"] for test in found))
    return [test for test, total_s in zip(found, most, strict=True) if total_s <= most_s or test == found[0]]


def _reaches(lines: dict[str, Any], mutant: Mutant) -> bool:
    digest, reached = lines.get(mutant.module, {}).get(mutant.function, (None, []))
    if digest != mutant.digest:
        return digest is not None
    first, last = mutant.statement
    return first <= 0 or any(first <= line <= last for line in reached)


@lru_cache(maxsize=1)
def _words() -> dict[str, set[tuple[str, str]]]:
    """The functions of the package that contain each word, by module and name."""
    found: dict[str, set[tuple[str, str]]] = {}
    package = ROOT / "src/qccf"
    for file in sorted(package.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        lines = source.splitlines()
        for name, (first, last) in functions(source).items():
            for word in re.findall(r"\w+", "\n".join(lines[first - 1 : last])):
                found.setdefault(word, set()).add((str(file.relative_to(package)), name))
    return found


def _users(mutant: Mutant) -> set[tuple[str, str]]:
    """The functions that use the name which a statement outside of functions assigns, else all of the module."""
    used = set().union(*(_words().get(name, set()) for name in mutant.assigned))
    source = (ROOT / "src/qccf" / mutant.module).read_text(encoding="utf-8")
    return used or {(mutant.module, name) for name in functions(source)}


def measured_reach(tree: Path, items: Sequence[Any], screen: int) -> dict[str, Any]:
    """The lines that each test runs, and its time; of test files that have changed it is measured again."""
    reach: dict[str, Any] = {}
    (KEPT / "reach").mkdir(exist_ok=True)
    for name in sorted({item.nodeid.partition("::")[0] for item in items}):
        digest = hashlib.sha256(name.encode() + (tree / name).read_bytes()).hexdigest()[:24]
        kept = KEPT / "reach" / f"{digest}.json"
        if not kept.exists():
            os.write(screen, f"which lines does {name} reach?\n".encode())
            chosen = [item for item in items if item.nodeid.partition("::")[0] == name]
            if in_copy(partial(_record_reach, chosen, tree, kept))[0] != 0:
                sys.exit(f"{name} cannot run without any change")
        reach |= json.loads(kept.read_text(encoding="utf-8"))
    (tree / REACH).write_text(json.dumps(reach), encoding="utf-8")
    return reach


def _record_reach(items: Sequence[Any], tree: Path, kept: Path) -> int:
    import coverage

    redirect(tree)
    package = tree / "src/qccf"
    warnings.simplefilter("ignore", coverage.exceptions.CoverageWarning)  # a file of tests may reach nothing
    seen = [str(package / part.removesuffix("/strategy.py")) for part in (*PARTS, "policies")]
    cover = coverage.Coverage(data_file=None, config_file=False, source=seen)
    cover.start()
    found: dict[str, Any] = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        cover.switch_context(item.nodeid)
        failed, began = item.session.testsfailed, time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed == failed:
            found[item.nodeid] = {"seconds": time.process_time() - began, "lines": {}}
        else:
            print(f"{item.nodeid} fails without any change", file=sys.__stderr__)
    cover.stop()
    data = cover.get_data()
    for file in data.measured_files():
        source = Path(file).read_text(encoding="utf-8")
        digests = function_digests(source)
        owner = {line: name for name, (first, last) in functions(source).items() for line in range(first + 1, last + 1)}
        starts = {name: first for name, (first, _) in functions(source).items()}
        module = str(Path(file).relative_to(package))
        for line, tests in data.contexts_by_lineno(file).items():
            for test in tests:
                if test in found and line in owner:
                    name = owner[line]
                    of_module = found[test]["lines"].setdefault(module, {})
                    of_module.setdefault(name, (digests[name], []))[1].append(line - starts[name])
    kept.write_text(json.dumps(found), encoding="utf-8")
    return 0


def explanations() -> dict[tuple[str, str, str], str]:
    """Why a survivor is no fault of the tests, by module, function and change."""
    if not EXPLAINED.exists():
        return {}
    tree = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    return {(one["module"], one["function"], change): one["why"] for one in tree["mutant"] for change in one["changes"]}


def share_interval(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson)."""
    z = 1.959964
    share = count / total
    middle = share + z**2 / (2 * total)
    half = z * math.sqrt(share * (1.0 - share) / total + z**2 / (4 * total**2))
    return (middle - half) / (1.0 + z**2 / total), (middle + half) / (1.0 + z**2 / total)


def print_results(chosen: Sequence[Mutant], known: dict[str, str]) -> int:
    """A table by part, then the survivors without an explanation; returns 1 if there are any."""
    explained = explanations()
    digests: dict[str, dict[str, str]] = {}
    rows: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    survivors = []
    for mutant in chosen:
        outcome = known.get(key_of(mutant, digests), "left")
        if outcome in (*ALIVE, "left") and mutant.words in explained:
            outcome = "explained"
        elif outcome in ALIVE:
            survivors.append(f"{outcome}: {mutant.name}")
        rows[part_of(mutant)][outcome] += 1
    columns = ("killed", "timeout", "explained", "survived", "unreached", "left")
    print(f"\n| part | {' | '.join(columns)} | killed or explained |")
    print(f"|---|{'---|' * len(columns)}---|")
    rows["all"] = sum(rows.values(), Counter())
    for part, counts in rows.items():
        good = counts["killed"] + counts["timeout"] + counts["explained"]
        tried = sum(counts.values()) - counts["left"]
        low, high = share_interval(good, tried) if tried else (0.0, 1.0)
        share = f"{good / tried:.1%} ({low:.1%} to {high:.1%})" if tried else ""
        print(f"| {part} | {' | '.join(str(counts[column]) for column in columns)} | {share} |")
    print("\n" + "\n".join(sorted(survivors)) if survivors else "\nno survivor without an explanation")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
