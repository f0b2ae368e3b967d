"""`qccf device measure`."""

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qccf.cli import choices
from qccf.cli.options import Subparsers, add_data_dir, add_scenario
from qccf.cli.parser import whole_number
from qccf.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from qccf.runtimes.device import MeasuredDevice

DEFAULT_OUT = "device.toml"
MOST_THREADS = 1024


def add_parser(commands: Subparsers) -> None:
    device = commands.add_parser("device", help="measure this machine and write its profile")
    device.description = (
        "Train a model on this machine for some seconds at each CPU frequency that may be set, read the energy where "
        "there is a meter, and write a device profile. What could not be measured is said and assumed."
    )
    device.usage = "qccf device measure [PRESET|FILE.toml] [options]"
    device.examples = {
        "qccf device measure --out my-laptop.toml": "the model of the preset quick",
        "sudo qccf device measure iot --seconds 10": "another model, at all frequencies and with the CPU's counters",
        "qccf device measure --meter my_meter:Meter": "with a meter of your own",
    }
    device.add_argument("action", choices=("measure",), metavar="ACTION", help="measure")
    add_scenario(device, "quick")
    device.add_argument("--model", metavar="NAME", help="the model to train, instead of the preset's")
    device.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="seconds at rest and at each frequency (default 5)"
    )
    device.add_argument(
        "--meter",
        default="auto",
        metavar="NAME",
        help="the energy meter: one of those below, none, or your own as module:Class (default auto: the first found)",
    )
    device.add_argument(
        "--frequency", type=float, metavar="HZ", help="frequency of the CPU, where the machine does not tell it"
    )
    device.add_argument(
        "--threads", type=whole_number, metavar="N", help="threads of PyTorch (default: its own choice)"
    )
    device.add_argument(
        "--out", type=Path, default=Path(DEFAULT_OUT), metavar="FILE", help=f"the profile (default {DEFAULT_OUT})"
    )
    device.add_argument("--force", action="store_true", help="replace the file of --out")
    add_data_dir(device)
    device.lists["Meters"] = choices.METERS
    device.set_defaults(run=device_command)


def device_command(options: argparse.Namespace) -> int:
    import tomli_w

    from qccf.cli.screen import announce, end_announcement, messages, output
    from qccf.core.files import write_text_whole
    from qccf.settings.loading import load_scenario

    if options.out.suffix != ".toml":
        raise ConfigError(f"--out {options.out} is not the name of a TOML file: give NAME.toml.")
    if options.out.exists() and not options.force:
        raise ConfigError(f"--out {options.out} exists: name another file, or replace it with --force.")
    if options.threads is not None and not 1 <= options.threads <= MOST_THREADS:
        raise ConfigError(f"--threads {options.threads} is out of range: give 1 to {MOST_THREADS}.")
    model = [f"learning.model={options.model}"] if options.model else []
    console = messages()
    announce(console, "Loading PyTorch and the data")
    scenario = load_scenario(options.scenario, [*options.overrides, *model])
    from qccf.runtimes.device import measure_device, threads

    end_announcement()
    with _stopped_like_ctrl_c(), threads(options.threads), _view(console) as show:
        measured = measure_device(
            scenario,
            name=options.out.stem,
            seconds=options.seconds,
            show=show,
            meter=options.meter,
            frequency_hz=options.frequency,
            data_dir=options.data_dir,
        )
    tree = {key: value for key, value in measured.profile.to_dict().items() if key not in _left_out(measured)}
    write_text_whole(options.out, tomli_w.dumps(tree))
    _print(output(), measured, options.out)
    return 0


def _left_out(measured: "MeasuredDevice") -> set[str]:
    """Figures without a source are defaults, and the file does not state them."""
    return {key for key in measured.profile.to_dict() if key not in (*measured.profile.sources, "title", "sources")}


@contextmanager
def _stopped_like_ctrl_c() -> Iterator[None]:
    """A request to end (SIGTERM) unwinds like Ctrl-C, so that frequencies are set back."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _view(console: "Console") -> Iterator[Callable[[str, float, float], None]]:
    """Shows a measurement: a bar for each part on a terminal, one line per part elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    seen: dict[str, Any] = {}

    def print_name(what: str, _done_s: float, total_s: float) -> None:
        if what not in seen:
            seen[what] = None
            console.print(f"{what}, {total_s:g} s …", soft_wrap=True, highlight=False)

    if not console.is_terminal:
        yield print_name
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bars:

        def update(what: str, done_s: float, total_s: float) -> None:
            if what not in seen:
                seen[what] = bars.add_task(what, total=total_s)
            bars.update(seen[what], completed=done_s)

        yield update


def _print(console: "Console", measured: "MeasuredDevice", path: Path) -> None:
    from rich.table import Table

    from qccf.core.numbers import quantity

    table = Table(title=f"This machine, {quantity(measured.flops_per_sample, 'FLOP')} per sample")
    for heading in (
        "frequency",
        "per sample",
        "cycles per sample",
        "FLOPs per cycle",
        "power above rest",
        "busy cores",
    ):
        table.add_column(heading, justify="right")
    for trial in measured.measurement.trials:
        table.add_row(
            quantity(trial.frequency_hz, "Hz"),
            quantity(trial.seconds_per_sample, "s"),
            quantity(trial.cycles_per_sample, ""),
            f"{measured.flops_per_sample / trial.cycles_per_sample:.3g}",
            quantity(trial.power_w, "W"),
            f"{trial.busy_cores:.1f}",
        )
    console.print(table)
    for note in measured.notes:
        console.print(f"{note[0].upper()}{note[1:]}", soft_wrap=True, highlight=False)
    console.print(f"Profile: {path}", soft_wrap=True, highlight=False)
