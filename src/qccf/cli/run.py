"""`qccf run`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qccf.cli.options import Subparsers, add_scenario, add_training, execution_of, settings_of, warn


def add_parser(commands: Subparsers) -> None:
    run = commands.add_parser("run", help="train a federation under one policy")
    run.description = "Train a federation under one policy. A run that was stopped can be resumed from its folder."
    add_scenario(run, "femnist")
    run.add_argument("--policy", metavar="NAME", help="one of the five, or your own as module:Class (default qccf)")
    run.add_argument(
        "--codec", metavar="NAME", help="how uploads are coded; the paper's is `model` (see docs/codecs.md)"
    )
    run.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default runs/…)")
    run.add_argument("--resume", type=Path, metavar="DIR", help="resume the run in this folder")
    add_training(run)
    run.set_defaults(run=run_command, trains=True)


def run_command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from qccf.cli.round_view import round_view
    from qccf.cli.tables import print_health, results_table, service_table
    from qccf.core.files import require_writable
    from qccf.jobs.names import file_name
    from qccf.learning.datasets import data_folder, load_dataset
    from qccf.report.figures.drawing import save_chart
    from qccf.report.figures.run import run_charts
    from qccf.rounds.run import health_sentences
    from qccf.rounds.run_folder import read_scenario
    from qccf.rounds.setup import check_scenario
    from qccf.runtimes.simulator import resolved_scenario, simulate
    from qccf.settings.loading import load_scenario

    if options.resume is not None:
        scenario = read_scenario(options.resume, execution_of(options))
    else:
        scenario = load_scenario(options.scenario, [*settings_of(options), *execution_of(options)])
    if options.policy:
        scenario = scenario.replaced(policy={"name": options.policy})
    name = f"{Path(options.scenario).stem}-{file_name(scenario.policy.name)}-seed{scenario.federation.seed}"
    out: Path = options.resume or options.out or Path("runs") / name
    check_scenario(resolved_scenario(scenario, None, warn))
    scenario = resolved_scenario(scenario, data_folder(options.data_dir), warn)
    require_writable(out)
    dataset = load_dataset(scenario.data.dataset, data_folder(options.data_dir), seed=0)
    console = Console()
    with round_view(console) as view:
        callbacks: list[Callable[[Any], None]] = [view.update]
        if options.tensorboard:
            from qccf.runtimes.tensorboard import TensorBoardWriter

            callbacks.append(TensorBoardWriter(out / "tensorboard").update)
        run = simulate(
            scenario,
            out=out,
            dataset=dataset,
            callbacks=callbacks,
            warn=warn,
        )
    for chart in run_charts([run], dataset):
        save_chart(chart, out / "figures" / f"{chart.key}.png")
    console.print(results_table(f"{dataset.name}, {run.summary['rounds']} rounds", [run.policy], [run.summary]))
    console.print(service_table([run.policy], [run.summary]))
    print_health(console, health_sentences([run]))
    if dataset.synthetic:
        console.print(f"Data: {dataset.source}.", style="yellow")
    console.print(f"Written: {out}", soft_wrap=True)
    if run.finished:
        return 0
    console.print(f"Stopped after round {run.summary['rounds']}; resume with: qccf run --resume {out}", soft_wrap=True)
    return 130
