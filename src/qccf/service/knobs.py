"""The settings that the planner's page shows, with the unit and the range of each slider."""

from dataclasses import asdict, dataclass
from typing import Any

from qccf.devices.profiles.registry import PROFILES
from qccf.devices.radio_power.registry import RADIO_POWERS
from qccf.policies.registry import PAPERS_POLICIES, POLICIES
from qccf.quantization.registry import CODECS
from qccf.settings.loading import PRESETS, load_scenario
from qccf.settings.reference import settings_reference
from qccf.wireless.path_loss.registry import PATH_LOSSES
from qccf.wireless.rates.registry import RATE_MODELS


@dataclass(frozen=True)
class Knob:
    """One setting. The page shows its value divided by `scale` in `unit`; a field takes values beyond the slider.

    A knob of the `paper`'s device is hidden where clients have other devices, whose profiles state the value.
    """

    path: str
    label: str
    group: str
    low: float = 0.0
    high: float = 1.0
    unit: str = ""
    scale: float = 1.0
    log: bool = False
    whole: bool = False
    choices: tuple[str, ...] = ()
    paper: bool = False


YES_NO = ("false", "true")

KNOBS = (
    Knob("federation.num_clients", "Clients", "Federation", 1, 200, log=True, whole=True),
    Knob("federation.rounds", "Rounds", "Federation", 5, 200, log=True, whole=True),
    Knob("federation.seed", "First seed", "Federation", 0, 100, whole=True),
    Knob("data.dataset_size_mean", "Samples per client", "Federation", 100, 10_000, log=True, whole=True),
    Knob("data.dataset_size_std", "Spread of samples", "Federation", 0, 2000, whole=True),
    Knob("learning.num_parameters", "Model parameters", "Federation", 1e4, 1e8, log=True, whole=True),
    Knob("radio.num_channels", "Channels", "Radio", 1, 100, log=True, whole=True),
    Knob("radio.bandwidth_hz", "Bandwidth per channel", "Radio", 0.1, 100, "MHz", 1e6, log=True),
    Knob("radio.rate", "Rate model", "Radio", choices=tuple(RATE_MODELS)),
    Knob("radio.power", "Radio power", "Radio", choices=tuple(RADIO_POWERS)),
    Knob("radio.transmit_power_w", "Transmit power", "Radio", 1, 2000, "mW", 1e-3, log=True, paper=True),
    Knob("radio.gain_db", "Antenna gain", "Radio", -20, 40, "dB"),
    Knob("cell.radius_m", "Radius of the cell", "Cell", 50, 2000, "m", log=True),
    Knob("cell.path_loss", "Path loss", "Cell", choices=tuple(PATH_LOSSES)),
    Knob("cell.line_of_sight", "Line of sight", "Cell", choices=("always", "never", "random")),
    Knob("cell.shadowing", "Shadowing", "Cell", choices=YES_NO),
    Knob("device.deadline_s", "Deadline", "Devices", 1, 100_000, "ms", 1e-3, log=True),
    Knob("devices.profile", "Device", "Devices", choices=tuple(PROFILES)),
    Knob("device.frequency_max_hz", "Highest CPU frequency", "Devices", 0.2, 5, "GHz", 1e9, log=True, paper=True),
    Knob("device.cycles_per_sample", "Cycles per sample", "Devices", 100, 1e6, log=True, paper=True),
    Knob("control.energy_weight", "Weight of energy", "Controller", 0.02, 50, log=True),
    Knob("control.share", "Share of participants", "Controller", 0.05, 1),
)


def options_answer() -> dict[str, Any]:
    """Presets with their values, policies, codecs and knobs."""
    about = {info.path: info.description for info in settings_reference()}
    return {
        "presets": {name: _values(name) for name in PRESETS},
        "policies": list(POLICIES),
        "default_policies": list(PAPERS_POLICIES),
        "codecs": list(CODECS),
        "knobs": [asdict(knob) | {"about": about[knob.path]} for knob in KNOBS],
    }


def _values(preset: str) -> dict[str, Any]:
    tree: dict[str, Any] = load_scenario(preset).model_dump()
    values: dict[str, Any] = {"codec.name": tree["codec"]["name"], "devices.mix": tree["devices"]["mix"]}
    for knob in KNOBS:
        section, _, key = knob.path.partition(".")
        values[knob.path] = tree[section][key]
    return values
