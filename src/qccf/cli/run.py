"""`qccf run`."""

import argparse
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qccf.cli.options import (
    Subparsers,
    add_json,
    add_one_policy_and_codec,
    add_scenario,
    add_seed,
    add_training,
    add_trust,
    add_until_accuracy,
    execution_of,
    from_folder,
    settings_of,
    warn,
)
from qccf.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from qccf.rounds.run import Run
    from qccf.settings.loading import Scenario

DEFAULT_SCENARIO = "quick"


def add_parser(commands: Subparsers) -> None:
    run = commands.add_parser("run", help="train a federation under one policy")
    run.description = "Train a federation under one policy. A run that was stopped can be resumed from its folder."
    run.usage = "qccf run [PRESET|FILE.toml] [options]"
    run.examples = {
        "qccf run quick": "a first look: synthetic data, 16 rounds",
        "qccf run femnist --policy same-size --codec model --seed 3": "one baseline with the paper's codec",
    }
    run.elsewhere = {"--seeds": "a run has one cell: use --seed S, or qccf compare --seeds K for several."}
    add_scenario(run, DEFAULT_SCENARIO)
    add_one_policy_and_codec(run, "qccf", "update+entropy")
    add_seed(run)
    run.add_argument(
        "--out", type=Path, metavar="DIR", help="the run's folder (default: one per settings, below runs/)"
    )
    run.add_argument("--force", action="store_true", help="replace what qccf has written into --out, and start fresh")
    run.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="resume the run in this folder, or extend it with --rounds or --until-accuracy",
    )
    add_until_accuracy(run)
    add_trust(run, "the folder of --resume")
    add_training(run)
    add_json(run, "every round and the settings")
    run.set_defaults(run=run_command, trains=True, scenario=None)


def run_command(options: argparse.Namespace) -> int:
    if options.trust and options.resume is None:
        raise ConfigError("--trust is for the folder of --resume, and there is none: leave it out.")
    with from_folder(options.resume or Path(), trusted=options.trust or options.resume is None):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    from qccf.cli.screen import announce, end_announcement, screen_of

    console = screen_of(options)
    announce(console, "Loading libraries and settings")
    from qccf.cli.folders import default_folder, require_free_for_run
    from qccf.cli.round_view import round_view
    from qccf.cli.tables import status_of
    from qccf.core.files import one_at_a_time, require_writable
    from qccf.jobs.names import readable_name
    from qccf.learning.datasets import data_folder, load_dataset
    from qccf.reports.figures.drawing import save_chart
    from qccf.reports.figures.run import run_charts
    from qccf.rounds.run_folder import FIGURES, is_finished, read_run
    from qccf.rounds.setup import check_scenario
    from qccf.runtimes.simulator import resolved_scenario, simulate
    from qccf.settings.loading import load_scenario, own_names, run_digest

    source = options.scenario or DEFAULT_SCENARIO
    if options.resume is not None:
        scenario = resumed_scenario(options)
    else:
        scenario = load_scenario(source, [*settings_of(options), *execution_of(options)])
    if options.policy:
        scenario = scenario.replaced(policy={"name": options.policy})
    check_scenario(resolved_scenario(scenario, None, warn))
    scenario = resolved_scenario(scenario, data_folder(options.data_dir), warn)
    name = f"{Path(source).stem}-{readable_name(scenario)}"
    out: Path = options.resume or options.out or default_folder(name, run_digest(scenario))
    if options.resume is None:
        require_free_for_run(out, scenario, force=options.force)
    if is_finished(out, scenario.federation.rounds, scenario.evaluation.until_accuracy):
        end_announcement()
        finished = read_run(out)
        _print_results(console, finished, out, options.json)
        console.print("This run was finished already: nothing was trained, and the results are those of its files.")
        return status_of([finished])
    require_writable(out)
    data = scenario.data
    announce(console, f"Reading the data of {data.dataset}")
    dataset = load_dataset(data.dataset, data_folder(options.data_dir), seed=0, options=data.options)
    end_announcement()
    with round_view(console) as view:
        callbacks: list[Callable[[Any], None]] = [view.update]
        if options.tensorboard:
            from qccf.runtimes.tensorboard import TensorBoardWriter

            callbacks.append(TensorBoardWriter(out / "tensorboard").update)
        extend = options.resume is not None
        run = simulate(scenario, out=out, extend=extend, dataset=dataset, callbacks=callbacks, warn=warn)
    with one_at_a_time(out / FIGURES):
        for chart in run_charts([run], dataset):
            chart = replace(chart, caption=f"Codec {run.codec}. {chart.caption}")
            save_chart(chart, out / FIGURES / f"{chart.key}.png")
    _print_results(console, run, out, options.json)
    if run.finished:
        return status_of([run])
    trust = " --trust" if own_names(scenario) else ""
    again = f"qccf run --resume {shlex.quote(str(out))}{trust}"
    console.print(f"Stopped after round {run.summary['rounds']}; resume with: {again}", soft_wrap=True)
    return 130


def resumed_scenario(options: argparse.Namespace) -> "Scenario":
    """The settings of the run to resume. Options that would change its numbers, or have no effect, are refused."""
    from qccf.rounds.extension import require_extensible
    from qccf.rounds.run_folder import read_scenario, require_only_data
    from qccf.settings.loading import run_digest

    given = {
        "a scenario": options.scenario, "--set": options.overrides, "--seed": options.seed is not None,
        "--policy": options.policy, "--codec": options.codec, "--out": options.out, "--force": options.force,
    }  # fmt: skip
    for name, value in given.items():
        if value:
            raise ConfigError(f"--resume takes the settings of its folder, so {name} cannot be given: leave it out.")
    held = read_scenario(options.resume)
    if not options.trust:
        require_only_data(options.resume, held)
    scenario = read_scenario(options.resume, execution_of(options))
    if run_digest(scenario) != run_digest(held):
        raise ConfigError(
            f"the run in {options.resume} has execution.device = {held.execution.device!r} and execution.precision = "
            f"{held.execution.precision!r}, and others would change its numbers: leave out --device and --precision."
        )
    changed = [*execution_of(options), *settings_of(options)]
    if changed == execution_of(options):
        return scenario
    longer = read_scenario(options.resume, changed)
    require_extensible(held, longer)
    return longer


def _print_results(console: "Console", run: "Run", out: Path, as_json: str | None) -> None:
    from qccf.cli.json_output import print_json, run_json
    from qccf.cli.tables import common_parts, print_health, print_privacy, results_table, service_table
    from qccf.core.words import counted
    from qccf.rounds.run import health_sentences
    from qccf.rounds.targets import until_sentence

    if as_json:
        print_json(run_json(replace(run, folder=out), full=as_json == "full"))
        return
    title = f"{run.summary['dataset']}, {counted(run.summary['rounds'], 'round')}{common_parts([run])}"
    console.print(results_table(title, [run.policy], [run.summary]))
    console.print(service_table([run.policy], [run.summary]))
    if sentence := until_sentence(run):
        console.print(sentence, soft_wrap=True, highlight=False)
    print_privacy(console, [run])
    print_health(console, health_sentences([run]))
    if run.summary["synthetic"]:
        console.print(f"Data: {run.summary['data']}.", style="yellow")
    console.print(f"Written: {out}", soft_wrap=True)
