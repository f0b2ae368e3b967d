"""`qccf run` and `qccf compare`."""

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from qccf.cli.prepare import prepare
from qccf.cli.round_view import LiveView, PlainView, results_table
from qccf.core.errors import ConfigError
from qccf.core.files import write_text_whole, write_whole
from qccf.learning.datasets import Dataset, data_folder, load_dataset
from qccf.policies.registry import POLICIES
from qccf.runtimes.simulator import Run, simulate
from qccf.settings.loading import Scenario, load_scenario
from qccf.settings.schema import PAPERS_CODEC


def run_command(options: argparse.Namespace) -> int:
    """One policy, one seed."""
    if options.resume is not None:
        scenario = load_scenario(_scenario_of(options.resume), _execution(options))
        out: Path = options.resume
    else:
        scenario = load_scenario(options.scenario, [*_settings(options), *_execution(options)])
        name = options.policy or scenario.policy.name
        out = (
            options.out or Path("runs") / f"{Path(options.scenario).stem}-{_slug(name)}-seed{scenario.federation.seed}"
        )
    policy = options.policy or scenario.policy.name
    prepare(scenario, [policy], [scenario.federation.seed], out)
    dataset = _dataset(scenario, options)
    console = Console()
    run = _simulate(scenario, policy, scenario.federation.seed, out, dataset, console, options)
    _figures(out, [run], scenario, dataset)
    console.print(results_table(f"{dataset.name}, {run.summary['rounds']} rounds", [run.summary]))
    return _farewell(console, out, dataset, [run], f"qccf run --resume {out}")


def compare_command(options: argparse.Namespace) -> int:
    """All policies on the same cells, fading and data. A comparison that was stopped goes on where it stopped."""
    scenario = load_scenario(options.scenario, [*_settings(options), *_execution(options)])
    policies = options.policies.split(",") if options.policies else list(POLICIES)
    codecs = options.codecs.split(",") if options.codecs else [_papers_codec(scenario)]
    if not 1 <= options.seeds <= 1000:
        raise ConfigError(f"--seeds {options.seeds} is out of range: give 1 to 1000.")
    seeds = range(scenario.federation.seed, scenario.federation.seed + options.seeds)
    out: Path = options.out or Path("runs") / f"compare-{Path(options.scenario).stem}"
    for codec in codecs:
        prepare(scenario.with_codec(codec), policies, seeds, out)
    dataset = _dataset(scenario, options)
    console = Console()
    runs: list[Run] = []
    for seed, name, codec in itertools.product(seeds, policies, codecs):
        label = ", ".join([name] * (len(policies) > 1 or len(codecs) == 1) + [codec] * (len(codecs) > 1))
        folder = out / f"{_slug(label)}-seed{seed}"
        run = _simulate(scenario.with_codec(codec), name, seed, folder, dataset, console, options)
        runs.append(replace(run, summary={**run.summary, "label": label}))
        if not run.finished:
            return _farewell(console, out, dataset, runs, "the same command again")
    write_text_whole(out / "summary.json", json.dumps([run.summary for run in runs], indent=2) + "\n")
    _figures(out, runs, scenario, dataset)
    title = f"{dataset.name}, {scenario.federation.rounds} rounds, {options.seeds} seed{'s' * (options.seeds > 1)}"
    console.print(results_table(title, [run.summary for run in runs]))
    floor = sum(run.summary["floor_j"] for run in runs) / len(runs)
    console.print(f"Floor: {floor:.3g} J for computing alone at the lowest frequency, with nothing sent.")
    return _farewell(console, out, dataset, runs, "")


def _simulate(
    scenario: Scenario,
    policy: str,
    seed: int,
    out: Path,
    dataset: Dataset,
    console: Console,
    options: argparse.Namespace,
) -> Run:
    view = LiveView(console) if console.is_terminal else PlainView(console)
    callbacks: list[Callable[[Any], None]] = [view.update]
    if options.tensorboard:
        from qccf.cli.tensorboard import TensorBoardWriter

        callbacks.append(TensorBoardWriter(out / "tensorboard").update)
    with view:
        return simulate(
            scenario,
            policy,
            seed=seed,
            out=out,
            dataset=dataset,
            callbacks=callbacks,
            warn=lambda sentence: print(f"qccf: {sentence}", file=sys.stderr),
        )


def _figures(out: Path, runs: list[Run], scenario: Scenario, dataset: Dataset) -> None:
    from qccf.report.figures.run import run_figures

    for name, figure in run_figures(runs, scenario, dataset).items():
        write_whole(out / "figures" / f"{name}.png", figure.savefig)


def _farewell(console: Console, out: Path, dataset: Dataset, runs: list[Run], again: str) -> int:
    if dataset.synthetic:
        console.print(f"Data: {dataset.source}.", style="yellow")
    console.print(f"Written: {out}", soft_wrap=True)
    if runs[-1].finished:
        return 0
    console.print(f"Stopped after round {runs[-1].summary['rounds']}; go on with: {again}", soft_wrap=True)
    return 130


def _dataset(scenario: Scenario, options: argparse.Namespace) -> Dataset:
    return load_dataset(scenario.data.dataset, data_folder(options.data_dir), seed=0)


def _settings(options: argparse.Namespace) -> list[str]:
    overrides = list(options.overrides)
    if options.rounds is not None:
        overrides.append(f"federation.rounds={options.rounds}")
    if options.seed is not None:
        overrides.append(f"federation.seed={options.seed}")
    if getattr(options, "codec", None) is not None:
        overrides.append(f"codec.name={options.codec}")
    return overrides


def _execution(options: argparse.Namespace) -> list[str]:
    chosen = {"device": options.device, "precision": options.precision, "workers": options.workers}
    return [f"execution.{key}={value}" for key, value in chosen.items() if value is not None]


def _scenario_of(folder: Path) -> Path:
    path = folder / "scenario.toml"
    if not path.exists():
        raise ConfigError(f"--resume {folder}: there is no run, for it has no scenario.toml.")
    return path


def _papers_codec(scenario: Scenario) -> str:
    """The paper's comparison is of its own codec, unless the scenario names one."""
    return scenario.codec.name if "name" in scenario.codec.model_fields_set else PAPERS_CODEC


def _slug(label: str) -> str:
    return label.replace(":", "-").replace(".", "-").replace(", ", "-")
