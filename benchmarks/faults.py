"""Inject faults and count what is lost: kills, damaged files, full disks, second writers, settings, payloads, lies.

A fault is survived if the run ends as if nothing had happened, bit for bit, or if it is refused in one sentence. It is
lost if a round that was acknowledged is gone, a number is wrong, or an error is not one of ours. A lying report is
survived if the honest clients take part as before, within the liars' share (`support/liars.py`). Results are kept in
`.faults`, so that a later call goes on where this one stopped.

Run: python -m benchmarks.faults [--quick] [--seconds 3600] [--only kills,files]
"""

import argparse
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from qccf.cli import choices
from qccf.core.errors import FileError, QccfError
from qccf.core.files import alone_in
from qccf.devices.profiles.registry import PROFILES
from qccf.devices.radio_power.registry import RADIO_POWERS
from qccf.paper.families import dotted
from qccf.rounds import checkpoint
from qccf.rounds.run import Run
from qccf.rounds.run_folder import read_run
from qccf.rounds.setup import check_scenario, with_counted_parameters
from qccf.runtimes.planner import plan
from qccf.runtimes.simulator import run_fingerprint, simulate
from qccf.settings.loading import Scenario, load_scenario, scenario_to_toml
from qccf.wireless.path_loss.registry import PATH_LOSSES
from qccf.wireless.rates.registry import RATE_MODELS
from support.liars import bank, harm, measured
from support.payloads import fuzz
from tests.helpers.tiny import SETTINGS, tiny_dataset, tiny_scenario

LIES = bank()
KEPT = Path(__file__).parents[1] / ".faults"
ROUNDS = 6
BATCH = 25
"""Faults per process: one that takes the process with it costs no other its result."""
PAYLOADS = 10_000
"""Payloads per fault of that kind."""
MOST_S = 300.0
"""A fault whose outcome takes longer counts as lost."""
COUNTS = {
    "kills": 200,
    "files": 2000,
    "disks": 60,
    "writers": 20,
    "configurations": 300,
    "payloads": 100,
    "reports": len(LIES),
}
QUICK = {"kills": 6, "files": 100, "disks": 6, "writers": 2, "configurations": 50, "payloads": 2, "reports": 20}
TABLES = ("round_columns", "client_columns", "statistics_columns")


def scenario() -> Scenario:
    return tiny_scenario(f"federation.rounds={ROUNDS}", "execution.workers=1")


def trained(out: Path | None, after_round: Callable[[Any], None] = lambda _: None) -> Run:
    return simulate(scenario(), out=out, dataset=tiny_dataset(), callbacks=[after_round], warn=lambda _: None)


def same(one: Run, other: Run) -> bool:
    """Whether two runs are equal bit for bit."""
    if one.weights is not None and other.weights is not None and one.weights.tobytes() != other.weights.tobytes():
        return False
    tables = [(getattr(one, name), getattr(other, name)) for name in TABLES]
    return one.summary == other.summary and all(
        list(mine) == list(theirs)
        and all(np.array_equal(mine[k], theirs[k], equal_nan=_is_float(mine[k])) for k in mine)
        for mine, theirs in tables
    )


def _is_float(column: Any) -> bool:
    return column.dtype.kind == "f"


def made_folders(folder: Path) -> dict[str, Path]:
    """A finished run, and one that was stopped and has results of its first rounds."""
    trained(folder / "finished")

    def stop(event: Any) -> None:
        if len(event.ledger) == ROUNDS // 2:
            raise KeyboardInterrupt

    trained(folder / "stopped", stop)
    return {name: folder / name for name in ("finished", "stopped")}


# Each kind of fault is a function of a random generator, the reference run and the folders. It returns "recovered" or
# "refused", and raises AssertionError if something is lost.


def killed(chance: random.Random, reference: Run, _: dict[str, Path]) -> str:
    """Kill a run at a random moment, perhaps more than once in a row, and resume it."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "run"
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:

            def acknowledge(event: Any) -> None:
                os.write(theirs, bytes([len(event.ledger)]))
                time.sleep(0.02)

            trained(out, acknowledge)
            os._exit(0)
        os.close(theirs)
        select.select([ours], [], [], MOST_S)
        time.sleep(chance.uniform(0.0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        acknowledged = max(os.read(ours, 1000), default=0)
        os.close(ours)
        found, _ = checkpoint.latest(out / "checkpoints", run_fingerprint(scenario(), tiny_dataset()))
        assert found is not None, "no checkpoint"
        assert found[0].round_index >= acknowledged, f"round {acknowledged} is gone"
        assert same(trained(out), reference), "the resumed run differs"
        assert not list(out.rglob(".part-*")), "a part of a file is left"
    return "recovered"


def damaged(chance: random.Random, reference: Run, folders: dict[str, Path]) -> str:
    """Damage one file of a run folder, read it and resume it."""
    kind = chance.choice(list(folders))
    before = read_run(folders[kind])
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "run"
        shutil.copytree(folders[kind], out)
        path = chance.choice([path for path in sorted(out.rglob("*")) if path.is_file() and path.name != ".lock"])
        how = chance.choice(DAMAGE)
        how(path, chance)
        with suppress(QccfError):
            assert same(read_run(out), before), f"{how.__name__} of {path.name}: other numbers are read"
        try:
            assert same(trained(out), reference), f"{how.__name__} of {path.name}: the resumed run differs"
            assert same(read_run(out), reference), f"{how.__name__} of {path.name}: it is not repaired"
            return "recovered"
        except QccfError:
            return "refused"


def flip_anywhere(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def flip_in_the_first_or_last_bytes(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    place = chance.randrange(min(len(data), 512))
    data[place if chance.random() < 0.5 else -1 - place] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.choice((0, 1, 4, 8, len(data) - 1, len(data) - 8, chance.randrange(len(data))))])


def overwrite(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.choice((b"", b"\0" * 4096, chance.randbytes(2000), b"{}", b"[]", b"null", b"PK\x05\x06")))


def swap(path: Path, chance: random.Random) -> None:
    others = [one for one in sorted(path.parents[0].rglob("*")) if one.is_file() and one != path]
    shutil.copyfile(chance.choice(others), path) if others else path.write_bytes(b"")


def link(path: Path, chance: random.Random) -> None:
    elsewhere = path.parents[chance.randrange(2)].parent / "elsewhere"
    shutil.move(path, elsewhere)
    path.symlink_to(chance.choice((elsewhere, Path("/etc/passwd"), Path("/nowhere"), path)))


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


def replace_by_folder_or_pipe(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir() if chance.random() < 0.5 else os.mkfifo(path)


DAMAGE = (
    flip_anywhere, flip_anywhere, flip_in_the_first_or_last_bytes, flip_in_the_first_or_last_bytes, cut, cut, overwrite,
    swap, link, remove, replace_by_folder_or_pipe,
)  # fmt: skip


def full(chance: random.Random, reference: Run, _: dict[str, Path]) -> str:
    """No file may grow beyond a random size, as on a full disk; then there is room again."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "run"
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (chance.randrange(40_000), hard))
        try:
            outcome = "recovered" if trained(out) else ""
        except FileError:
            outcome = "refused"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not list(out.rglob(".part-*")), "a part of a file is left"
        assert same(trained(out), reference), "the resumed run differs"
    return outcome


def second_writer(_: random.Random, reference: Run, __: dict[str, Path]) -> str:
    """Another process works in the folder."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "run"
        with alone_in(out):
            child = os.fork()
            if not child:
                try:
                    trained(out)
                except QccfError as error:
                    os._exit(7 if "another process works in" in str(error) else 8)
                os._exit(9)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, "the second writer is not refused"
        assert same(trained(out), reference)
    return "refused"


VALUES: tuple[Any, ...] = (
    0, 1, -1, 3, 10**6, 10**30, 0.0, -0.0, 0.5, 1e-300, 1e300, float("inf"), float("nan"), True, False, None, "", "a",
    "😀", "a b", "a\0b", "\x1b[31m", "\ud800", "../../x", "/etc/passwd", "<script>", "$x$", "[/b]", "os:getcwd",
    "os:", "none.such:X", [], [1], ["a", 1], [[]], [{"a": 1}], {}, {"a b": 1}, {"😀": "😀"}, {"a": None},
    {"a": {"b": [{"c": 1}]}}, {1: 2}, b"a", {"a"}, date(2000, 1, 1), object(),
)  # fmt: skip


NAMES: dict[str, tuple[str, ...]] = {
    "policy.name": tuple(choices.POLICIES),
    "codec.name": tuple(choices.CODECS),
    "server.optimizer": tuple(choices.SERVER_OPTIMIZERS),
    "server.downlink": ("model", "update+entropy"),
    "aggregation.rule": tuple(choices.AGGREGATION_RULES),
    "attack.kind": tuple(choices.ATTACKS),
    "cell.path_loss": tuple(PATH_LOSSES),
    "radio.power": tuple(RADIO_POWERS),
    "radio.rate": tuple(RATE_MODELS),
    "devices.profile": tuple(PROFILES),
}
"""Built-in values of settings that are names."""


NEEDED: dict[str, dict[str, Any]] = {
    **{f"server.{name}.": {"server.optimizer": name} for name in choices.SERVER_OPTIMIZERS},
    **{f"aggregation.{name.replace('-', '_')}.": {"aggregation.rule": name} for name in choices.AGGREGATION_RULES},
    **{f"attack.{name.replace('-', '_')}.": {"attack.kind": name} for name in choices.ATTACKS},
    **{f"radio.{name.replace('-', '_')}.": {"radio.rate": name} for name in RATE_MODELS},
    **{f"{name.replace('-', '_')}.": {"policy.name": name} for name in choices.POLICIES},
    "radio.ue.": {"radio.power": "ue"},
    "control.paper.": {"control.form": "paper"},
    "control.inner": {"control.form": "paper"},
    "control.solver": {"control.form": "paper"},
    "control.genetic.": {"control.form": "paper", "control.solver": "genetic"},
    "statistics.gradient": {"statistics.model": "constant", "codec.name": "model"},
    "statistics.loss": {"statistics.model": "constant", "codec.name": "model"},
    "statistics.weight": {"statistics.model": "constant", "codec.name": "model"},
    "statistics.model": {"codec.name": "model"},
    "privacy.noise_multiplier": {"privacy.clip_norm": 1.0},
}
"""Without these settings a key, which begins so, has no effect and is refused."""


def described_keys() -> dict[str, dict[str, Any]]:
    """Every key with its type, default and limits, as JSON schema."""
    schema = Scenario.model_json_schema()

    def keys(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, described in tree["properties"].items():
            if "$ref" in described:
                yield from keys(schema["$defs"][described["$ref"].rpartition("/")[2]], f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", described

    return dict(keys(schema, ""))


def valid_value(key: str, described: dict[str, Any], known: Any, chance: random.Random) -> Any:
    """A value within the limits of a key, mostly near the one that it has, sometimes a limit itself."""
    if key in NAMES:
        return chance.choice(NAMES[key])
    described = described | chance.choice(described.get("anyOf", [{}]))
    if "enum" in described or described.get("type") == "boolean":
        return chance.choice(described.get("enum", (True, False)))
    if described.get("type") not in ("integer", "number"):
        return described.get("const", known)
    low = described.get("minimum", described.get("exclusiveMinimum", 0))
    high = described.get("maximum", described.get("exclusiveMaximum", 10**6))
    near = known if isinstance(known, int | float) and known else chance.choice((1, (high - low) / 1000))
    value = chance.choice((low, high)) if chance.random() < 0.1 else near * 10.0 ** chance.gauss(0.0, 0.4)
    value = min(max(value, low), high)
    if value in (described.get("exclusiveMinimum"), described.get("exclusiveMaximum")):
        value = (low + 9 * near) / 10 if low < near < high else (low + high) / 2
    return int(value) if described["type"] == "integer" else float(value)


def odd_value(known: Any, chance: random.Random) -> Any:
    """A value of any type, or of the type that a setting has but of any size."""
    if chance.random() < 0.5:
        return chance.choice(VALUES)
    if isinstance(known, bool):
        return chance.random() < 0.5
    if isinstance(known, int | float):
        return type(known)(known * 10.0 ** chance.uniform(-3.0, 3.0) + chance.choice((0, 0, 1)))
    return chance.choice([value for value in VALUES if isinstance(value, type(known))])


def configured(chance: random.Random, _: Run, __: dict[str, Path]) -> str:
    """Other values for one to six settings, in every fourth case of any content.

    They are refused, or written and read back, and then planned or trained for two rounds if they are small.
    """
    trains = chance.random() < 0.5
    preset = "femnist" if trains else chance.choice(list(choices.PRESETS))
    base = tiny_scenario() if trains else load_scenario(preset)
    known, described = dict(dotted(base.model_dump())), described_keys()
    stated = {one.partition("=")[0] for one in SETTINGS} if trains else set()
    kept = {key: known[key] for key in stated} | {"federation.rounds": 2, "execution.workers": 1}
    drawn = chance.sample([key for key in known if key in described], chance.randint(1, 6))
    changes = {
        needed: value
        for key in drawn
        for start, others in NEEDED.items()
        if key.startswith(start)
        for needed, value in others.items()
    }
    changes |= {key: valid_value(key, described[key], known[key], chance) for key in drawn if key not in changes}
    if chance.random() < 0.25:
        odd = chance.choice(list(known))
        changes[odd] = odd_value(known[odd], chance)
    try:
        made = load_scenario(preset, kept | changes)
        text = scenario_to_toml(made)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "scenario.toml").write_text(text, encoding="utf-8")
            again = load_scenario(folder / "scenario.toml")
            assert scenario_to_toml(again) == text, "settings differ after they are read back"
            check_scenario(with_counted_parameters(made))
            if not is_small(made):
                return "recovered"
            if trains:
                run = simulate(made, out=folder / "run", dataset=tiny_dataset(), warn=lambda _: None)
                assert same(replace(read_run(folder / "run"), weights=run.weights), run), "other numbers are read back"
            else:
                (run,) = plan(made, [made.policy.name], 1)
            assert np.isfinite(run.energy_j).all(), f"energy {run.energy_j}"
            assert (np.diff(run.energy_j, prepend=0.0) >= 0.0).all(), f"energy {run.energy_j}"
    except QccfError as error:
        return "refused" if "\n" not in str(error) else f"lost: {error}"
    return "recovered"


def is_small(made: Scenario) -> bool:
    federation, learning = made.federation, made.learning
    few = federation.num_clients <= 200 and made.radio.num_channels <= 200 and federation.rounds <= 5
    return few and learning.local_updates <= 100 and learning.local_epochs <= 10


def payload(chance: random.Random, _: Run, __: dict[str, Path]) -> str:
    """Mutated payloads by the thousand: the fuzzer raises if one breaks a decoder."""
    fuzz(PAYLOADS, chance.randrange(2**32))
    return "recovered"


def lie(number: int) -> str:
    """Clients report false statistics: the others must take part as before, within the liars' share."""
    case = LIES[number]
    found = harm(case, measured(case))
    return f"lost: {case}: {found}" if found else "recovered"


KINDS = {
    "kills": killed, "files": damaged, "disks": full, "writers": second_writer, "configurations": configured,
    "payloads": payload,
}  # fmt: skip
TITLES = {
    "kills": "kills (SIGKILL at a random moment)",
    "files": "damaged files of a run folder",
    "disks": "files that cannot grow (full disk)",
    "writers": "second writers of a folder",
    "configurations": "configurations drawn at random",
    "payloads": "mutated payloads",
    "reports": "lying reports",
}


def batch(kind: str, numbers: list[int], reference: Run, folders: dict[str, Path]) -> Iterator[list[Any]]:
    """The outcomes of some faults, from a process of their own."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        with os.fdopen(theirs, "w") as pipe, open(os.devnull, "w") as silence:
            os.dup2(silence.fileno(), 2)
            for number in numbers:
                signal.alarm(int(MOST_S))
                try:
                    chance = random.Random(f"{kind} {number}")
                    outcome = lie(number) if kind == "reports" else KINDS[kind](chance, reference, folders)
                except Exception as error:
                    place = traceback.extract_tb(error.__traceback__)[-1]
                    outcome = f"lost: {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
                print(json.dumps([kind, number, outcome]), file=pipe, flush=True)
        os._exit(0)
    os.close(theirs)
    left = list(numbers)
    with os.fdopen(ours) as pipe:
        for line in pipe:
            left.remove(json.loads(line)[1])
            yield json.loads(line)
    os.waitpid(child, 0)
    if left:
        yield [kind, left[0], "lost: the process died or took too long"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--only", default=",".join(COUNTS), help="kinds, separated by commas")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    counts = {kind: count for kind, count in (QUICK if options.quick else COUNTS).items() if kind in options.only}
    KEPT.mkdir(exist_ok=True)
    path = KEPT / "results.jsonl"
    known = {(kind, number): outcome for kind, number, outcome in map(json.loads, path.open())} if path.exists() else {}
    with tempfile.TemporaryDirectory() as name, path.open("a") as results:
        reference, folders = trained(None), made_folders(Path(name))
        for kind, count in counts.items():
            left = [number for number in range(count) if (kind, number) not in known]
            while left and time.monotonic() < ends:
                for one in batch(kind, left[:BATCH], reference, folders):
                    known[one[0], one[1]] = one[2]
                    results.write(json.dumps(one) + "\n")
                    results.flush()
                left = [number for number in left if (kind, number) not in known]
    return print_table(counts, known)


def print_table(counts: dict[str, int], known: dict[tuple[str, int], str]) -> int:
    print("| fault | injected | recovered | refused in one sentence | lost |\n|---|---|---|---|---|")
    lost = []
    for kind in counts:
        outcomes = Counter(outcome.partition(":")[0] for (one, _), outcome in known.items() if one == kind)
        lost += [
            f"{one} {number}: {outcome}"
            for (one, number), outcome in known.items()
            if one == kind and "lost" in outcome
        ]
        many = PAYLOADS if kind == "payloads" else 1
        numbers = [many * n for n in (outcomes.total(), outcomes["recovered"], outcomes["refused"], outcomes["lost"])]
        print(f"| {TITLES[kind]} | {' | '.join(f'{number:,}' for number in numbers)} |")
    print("\n" + "\n".join(lost) if lost else "")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
