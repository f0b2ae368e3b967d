"""How arguments are read: whole names, lists, and mistakes that are answered with one sentence."""

import pytest

from qccf.cli import choices
from qccf.cli.main import COMMANDS, main, parser
from qccf.devices.meters.registry import METERS
from qccf.learning.aggregation.registry import AGGREGATION_RULES
from qccf.learning.attacks.registry import ATTACKS
from qccf.learning.datasets import DATASETS
from qccf.learning.server.registry import SERVER_OPTIMIZERS
from qccf.policies.registry import POLICIES
from qccf.quantization.registry import CODECS
from qccf.settings.loading import PRESETS


@pytest.mark.parametrize("command", ["compare", "plan"])
def test_policies_and_codecs_are_lists_that_may_be_repeated(command: str) -> None:
    arguments = ["--policy", "qccf,same-size", "--policy", "own:Policy", "--codec", "model, update"]
    options = parser().parse_args([command, *arguments, "--seed", "3", "--seeds", "4"])
    assert options.policies == ["qccf", "same-size", "own:Policy"]
    assert options.codecs == ["model", "update"]
    assert (options.seed, options.seeds) == (3, 4)


def test_lists_do_not_grow_from_one_parse_to_the_next() -> None:
    assert parser().parse_args(["plan", "--policy", "qccf"]).policies == ["qccf"]
    assert parser().parse_args(["plan", "--policy", "qccf"]).policies == ["qccf"]


def test_a_run_has_one_policy_one_codec_and_one_seed() -> None:
    options = parser().parse_args(["run", "--policy", "same-size", "--codec", "block", "--seed", "2"])
    assert (options.policy, options.codec, options.seed) == ("same-size", "block", 2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rnu"], "command 'rnu' does not exist: did you mean run?"),
        (["plan", "--policies", "qccf"], "plan has no option --policies: did you mean --policy?"),
        (["compare", "--codecs=model"], "compare has no option --codecs: did you mean --codec?"),
        (["plan", "--poli", "qccf"], "plan has no option --poli: did you mean --policy?"),  # no abbreviations
        (["decide", "--sovler", "genetic"], "decide has no option --sovler: did you mean --solver?"),
        (["settings", "--zzz"], "settings has no option --zzz: see qccf settings --help."),
        (["--debgu", "run"], "qccf has no option --debgu: did you mean --debug?"),
        (["run", "--seeds", "2"], "run has no option --seeds: a run has one cell: use --seed S, or"),
        (["sweep", "x.toml", "--seeds", "2"], "sweep has no option --seeds: a sweep takes it from FILE.toml"),
        (["run", "--jobs", "2"], "run has no option --jobs: it is an option of compare, reproduce, sweep."),
        (["run", "--device", "gpu"], "'gpu' is not a value of --device: choose one of auto, cpu, cuda."),
        (["run", "--policy", "a,b"], "--policy a,b names several, and a run has one"),
        (["run", "--codec", "a", "--codec", "b"], "--codec a,b names several, and a run has one"),
        (["plan", "--policy", "qccf,"], "--policy: 'qccf,' has an empty name: write A,B;"),
        (["plan", "--seed", "x"], "--seed: 'x' is not a whole number; see qccf plan --help."),
        (["plan", "--json", "quick"], "'quick' is not a value of --json: choose one of summary, full."),
        (["reproduce", "fig6"], "figure 'fig6' does not exist: choose one of fig2, fig3, fig4, fig5, all."),
        (["reproduce", "--scale", "smal"], "'smal' is not a value of --scale: did you mean small?"),
        (["reproduce", "--tasks", "cifar"], "--tasks cifar: task 'cifar' does not exist: did you mean cifar10?"),
        (["sweep"], "qccf sweep needs FILE.toml; see qccf sweep --help."),
        (["run", "quick", "femnist"], "'femnist' is one argument too many; see qccf run --help."),
        (["plan", "femnits"], "nor a file: did you mean femnist?"),
        (["plan", "--policy", "same-szie"], "(did you mean 'same-size'?)"),
        (["plan", "--set", "bandwith_hz=3"], "did you mean radio.bandwidth_hz=3?"),
        (["plan", "--set", "device.bandwidth_hz=3"], "did you mean radio.bandwidth_hz?"),
        (["plan", "--set", "control.form=papr"], "(did you mean 'paper'?)"),
        (["data", "fetch", "emnits"], "(did you mean 'emnist'?)"),
        (["data", "fetch"], "qccf data fetch needs the name of a dataset: handwriting, emnist"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(capsys, arguments: list[str], sentence: str) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("qccf: ")
    assert sentence in shown.err
    assert shown.err.count("\n") == 1


def test_what_can_be_chosen_is_what_the_registries_hold() -> None:
    assert list(choices.POLICIES) == list(POLICIES)
    assert list(choices.CODECS) == list(CODECS)
    assert list(choices.DATASETS) == list(DATASETS)
    assert list(choices.SERVER_OPTIMIZERS) == list(SERVER_OPTIMIZERS)
    assert list(choices.AGGREGATION_RULES) == list(AGGREGATION_RULES)
    assert list(choices.ATTACKS) == list(ATTACKS)
    assert list(choices.METERS) == list(METERS)
    assert tuple(choices.PRESETS) == PRESETS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_an_example_and_fits_80_columns(capsys, monkeypatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert f"Usage: qccf {command}" in shown
    assert "Examples:" in shown or "Shells:" in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("command", ["run", "compare", "plan"])
def test_help_lists_what_can_be_chosen(capsys, command: str) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for entries in (choices.PRESETS, choices.POLICIES, choices.CODECS):
        assert all(f"{name} {text}" in shown for name, text in entries.items())


def test_without_a_command_the_help_is_shown(capsys) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Start:") < shown.index("Study:") < shown.index("Connect:") < shown.index("Look up:")
    assert all(f"\n  {command} " in shown for command in COMMANDS)


def test_help_is_in_colour_only_where_that_is_wanted(capsys, monkeypatch) -> None:
    for variable, colour in (("FORCE_COLOR", True), ("NO_COLOR", False)):
        monkeypatch.setenv(variable, "1")
        main([])
        assert ("\x1b[" in capsys.readouterr().out) == colour
