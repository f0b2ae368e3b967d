"""qccf from Python: simulate, compare, plan, load and report, from a preset, a file or a scenario.

Settings are given as `{"section.key": value}`, as `--set` takes them on the command line.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from qccf.core.errors import ConfigError
from qccf.core.registry import without_plugins
from qccf.policies.registry import PAPERS_POLICIES, with_codecs
from qccf.rounds.run import Run
from qccf.rounds.runs import Runs
from qccf.settings.loading import Scenario, load_scenario, setting_like

Source = str | Path | Scenario
Settings = Mapping[str, Any]
Names = str | Sequence[str]
"""One name, or several."""

TRAINING = ("dataset", "model", "data_dir", "callbacks", "extend", "warn")
"""The further keywords of `simulate` and `compare`."""


def simulate(
    source: Source = "quick",
    settings: Settings | None = None,
    *,
    policy: str | None = None,
    codec: str | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    **more: Any,
) -> Run:
    """Train a federation under one policy.

    With `out` the run is written to that folder, and a run that was stopped there resumes. `more` are `dataset` (a
    `Dataset` instead of the one that the settings name), `model` (a `torch.nn.Module`, or what makes one), `data_dir`,
    `callbacks` (each called with a `RoundEvent` after every round), `extend` (the folder may hold the same run with
    fewer rounds) and `warn`.

        run = qccf.simulate("quick", {"federation.rounds": 3})
        run.to_frame(), run.plot()
    """
    from qccf.runtimes import simulator

    _refuse_unknown(more)
    chosen = _chosen(load_scenario(source, settings or {}), policy, codec, seed)
    return simulator.simulate(chosen, out=None if out is None else Path(out), **more)


def compare(
    source: Source = "quick",
    settings: Settings | None = None,
    *,
    policies: Names | None = None,
    codecs: Names | None = None,
    seeds: int = 1,
    out: Path | str | None = None,
    **more: Any,
) -> Runs:
    """Train a federation under several policies or with several codecs, on the same cells, fading and data.

    The default is the paper's five policies with the codec of the settings. With `out` each run has its own folder
    below it, and the same call resumes what was stopped. `more` is as for `simulate`.
    """
    from qccf.jobs.names import run_name
    from qccf.runtimes import simulator

    _refuse_unknown(more)
    base = load_scenario(source, settings or {})
    first = base.federation.seed
    chosen = [
        _chosen(base, policy, codec, seed)
        for seed, (policy, codec) in product(
            range(first, first + _count(seeds)),
            with_codecs(_names(policies) or PAPERS_POLICIES, _names(codecs) or [base.codec.name]),
        )
    ]
    return Runs(
        [simulator.simulate(one, out=None if out is None else Path(out) / run_name(one), **more) for one in chosen]
    )


def plan(
    source: Source = "femnist",
    settings: Settings | None = None,
    *,
    policies: Names | None = None,
    codecs: Names | None = None,
    seeds: int = 8,
    statistics_from: Run | Path | str | None = None,
    on_progress: Callable[[str, int], None] | None = None,
    **more: Any,
) -> Runs:
    """Energy, latency and bits of a federation without training, in `seeds` random cells.

    `statistics_from` is a trained run, or its folder, whose measured statistics are used instead of the preset's.
    """
    from qccf.runtimes import planner

    _refuse_unknown(more, known=())
    recorded = statistics_from if isinstance(statistics_from, Run | None) else load_run(statistics_from)
    names = _names(policies) or list(PAPERS_POLICIES)
    runs = planner.plan(
        load_scenario(source, settings or {}),
        names,
        _count(seeds),
        on_progress,
        codecs=_names(codecs) or None,
        statistics_from=recorded,
    )
    return Runs(runs)


def load_run(folder: Path | str) -> Run:
    """The run in a folder."""
    from qccf.rounds.run_folder import read_run

    return read_run(Path(folder))


def load_runs(*folders: Path | str) -> Runs:
    """All runs in these folders and below them."""
    from qccf.rounds.run_folder import find_runs

    return Runs([load_run(folder) for folder in find_runs([Path(folder) for folder in folders])])


def report(runs: Run | Sequence[Run] | Path | str, out: Path | str = "report.html") -> Path:
    """Write one HTML page about runs, or about the runs in a folder; returns its path."""
    from qccf.reports.page.build import build_report
    from qccf.reports.page.opening import Manifest

    if isinstance(runs, Run):
        runs = [runs]
    elif isinstance(runs, Path | str):
        runs = load_runs(runs)
    if not runs:
        raise ConfigError("there is no run to report: give at least one run, or a folder that holds one.")
    page = Path(out)
    with without_plugins("a run"):
        build_report(runs, [], Manifest()).write(page)
    return page


def _chosen(base: Scenario, policy: str | None, codec: str | None, seed: int | None) -> Scenario:
    """The scenario with these in place of its own."""
    changes = {"policy.name": policy, "codec.name": codec, "federation.seed": seed}
    return load_scenario(base, {key: value for key, value in changes.items() if value is not None})


def _refuse_unknown(more: Settings, known: Sequence[str] = TRAINING) -> None:
    """Refuse a keyword that does not exist; it may be a setting."""
    for name, value in more.items():
        if name not in known:
            path = setting_like(name)
            remedy = f"settings are given as {{{path!r}: {value!r}}}" if path else "see the function's help"
            raise ConfigError(f"there is no keyword {name!r} here: {remedy}.")


def _names(names: Names | None) -> list[str]:
    return [names] if isinstance(names, str) else list(dict.fromkeys(names or ()))


def _count(seeds: int) -> int:
    if seeds < 1:
        raise ConfigError(f"seeds = {seeds} is out of range: give at least 1.")
    return seeds
