"""Settings from TOML files, presets and `section.key=value` overrides, and back to TOML.

A mistake is refused in one sentence with its key, its value and the limit.
"""

import copy
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from qccf.core.errors import ConfigError
from qccf.core.registry import Registry, is_own, source_digest
from qccf.core.suggest import closest, hint
from qccf.devices.clients_table import read_clients
from qccf.devices.radio_power.registry import RADIO_POWERS
from qccf.learning.aggregation.registry import AGGREGATION_RULES
from qccf.learning.attacks.registry import ATTACKS
from qccf.learning.server.registry import SERVER_OPTIMIZERS
from qccf.settings.devices import check_devices
from qccf.settings.schema import Scenario
from qccf.wireless.rates.registry import RATE_MODELS
from qccf.wireless.traces.trace import trace_digest

__all__ = [
    "PRESETS",
    "Scenario",
    "digest",
    "load_scenario",
    "own_code",
    "own_names",
    "place_setting",
    "read_settings",
    "read_toml",
    "refuse_unused",
    "run_digest",
    "scenario_from_dict",
    "scenario_to_toml",
    "setting_like",
    "with_layer",
    "with_settings",
]

PRESETS = ("femnist", "cifar10", "quick", "lean", "3gpp", "iot", "paper-table")
_PAPERS = ("quantization_budget", "data_budget", "participation_margin", "quantization_margin")
RENAMED = {"cell.scenario": "cell.path_loss"} | {f"control.{key}": f"control.paper.{key}" for key in _PAPERS}
"""Keys of version 0.1 and what they are called now. Its `control.energy_weight` was V of the paper's form."""


DEPENDENTS = {
    "learning.model": ("num_parameters", "num_buffers", "model_options", "flops_per_sample"),
    "data.dataset": ("fallbacks", "options"),
    "statistics.model": ("trace",),
    "radio.resource_blocks": ("bandwidth_hz", "numerology"),
    "radio.numerology": ("bandwidth_hz",),
    "radio.bandwidth_hz": ("resource_blocks", "numerology"),
    "radio.rate": ("rate_options",),
    "radio.trace": ("trace_digest",),
    "devices.profile": ("digest", "mix", "nodes"),
    "devices.mix": ("digest", "profile", "table", "mix", "nodes"),
    "devices.table": ("digest", "mix", "nodes"),
}
"""Keys whose values belong to the value of another key. Shares make sense together, so a mix replaces a whole mix."""

ALTERNATIVES = {"learning": ("local_updates", "batch_size")}
"""Keys of a section of which one takes the place of the other."""

PLUGINS = (
    "policy.name", "codec.name", "data.dataset", "data.fallbacks", "data.transform", "learning.model", "learning.loss",
    "learning.optimizer", "cell.path_loss", "radio.rate", "radio.trace_form", "server.optimizer",
    "aggregation.rule", "attack.kind", "radio.power",
)  # fmt: skip
"""Settings that may name a user's own entry."""

OPTION_OWNERS: dict[str, tuple[str, Registry[Any]]] = {
    "server": ("optimizer", SERVER_OPTIMIZERS),
    "aggregation": ("rule", AGGREGATION_RULES),
    "attack": ("kind", ATTACKS),
}
"""Sections whose parts hold the options of one entry each, the key that names the entry, and the registry."""

CONSTANTS = tuple(f"statistics.{key}" for key in ("gradient_norm_sq", "gradient_variance", "weight_range", "loss"))
SCALE_FREE_KEYS = (
    "control.slack", "control.share", "control.energy_weight", "control.power", "control.battery_weight",
)  # fmt: skip


def load_scenario(
    source: str | Path | Scenario = "femnist",
    overrides: Mapping[str, Any] | Iterable[str] = (),
    *,
    renamed: bool = False,
) -> Scenario:
    """The scenario of a preset, a TOML file or another scenario, with some settings changed.

    Overrides are `{"section.key": value}`, or texts `section.key=value` that are applied in order. A file may begin
    with `preset = "name"`: it then states only what differs from that preset. `renamed` is for the settings in the
    folder of a run: it accepts the keys of version 0.1, and opens no file that they name.
    """
    tree = source.model_dump(exclude_unset=True) if isinstance(source, Scenario) else read_settings(source)
    if renamed:
        _rename(tree)
    changes = dict(overrides) if isinstance(overrides, Mapping) else dict(_parsed(override) for override in overrides)
    scenario = scenario_from_dict(with_settings(tree, changes), read_files=not renamed)
    if renamed:  # a finished run is shown without its files, and they may be any of this machine
        refuse_unused(scenario, changes)
        return scenario
    check_devices(scenario)
    refuse_unused(scenario, {**_stated_beside_a_preset(source), **changes})
    return scenario


def _stated_beside_a_preset(source: str | Path | Scenario) -> dict[str, Any]:
    """What a file states that begins with a preset, by `section.key`; nothing for other sources.

    A file without a preset may be a saved run, which states everything, also what has no effect.
    """
    own = {} if isinstance(source, Scenario) or str(source) in PRESETS else _own_settings(source)
    if "preset" not in own:
        return {}
    stated: dict[str, Any] = {}
    for section, values in own.items():
        for key, value in values.items() if isinstance(values, dict) else ():
            parts = value if isinstance(value, dict) else {}
            stated |= {f"{section}.{key}.{part}": one for part, one in parts.items()} or {f"{section}.{key}": value}
    return stated


PAPERS_DEVICE = (
    "device.cycles_per_sample", "device.flops_per_cycle", "device.energy_coefficient", "device.frequency_min_hz",
    "device.frequency_max_hz", "device.battery_j", "radio.transmit_power_w", "radio.circuit_power_w",
)  # fmt: skip
"""Settings that are figures of the profile `paper`, and of no other."""


def refuse_unused(scenario: Scenario, changes: Iterable[str]) -> None:
    """Refuse a change of a setting that belongs to another form, server optimizer or source of statistics."""
    form = scenario.control.form
    devices = scenario.devices
    for key in changes:
        if key in PAPERS_DEVICE and not devices.may_be_papers:
            raise ConfigError(
                f"{key} has no effect with {devices.described()}: it is a figure of the profile paper; write a profile "
                "of your own or a table of clients."
            )
        papers = key.startswith(("control.paper.", "control.genetic."))
        if (papers and form != "paper") or (form == "paper" and key in SCALE_FREE_KEYS):
            other = "paper" if papers else "scale-free"
            raise ConfigError(
                f'{key} has no effect with control.form = "{form}": set control.form = "{other}", or leave it out.'
            )
        for chooser, registry in (("rate", RATE_MODELS), ("power", RADIO_POWERS)):
            chosen = getattr(scenario.radio, chooser)
            for name, entry in registry.items():
                section = getattr(entry, "section", "")
                if section and key.startswith(f"radio.{section}.") and chosen != name:
                    raise ConfigError(
                        f'{key} has no effect with radio.{chooser} = "{chosen}": set radio.{chooser} = "{name}", or '
                        "leave it out."
                    )
        _refuse_foreign_option(scenario, key)
        if key in CONSTANTS and scenario.statistics.model == "recorded":
            raise ConfigError(
                f'{key} has no effect with statistics.model = "recorded": set statistics.model = "constant", or leave '
                "it out."
            )


def _refuse_foreign_option(scenario: Scenario, key: str) -> None:
    """Refuse an option of an entry that the settings do not name, such as `server.fedavgm.momentum` with fedadam."""
    section, _, rest = key.partition(".")
    part, dot, _ = rest.partition(".")
    if section not in OPTION_OWNERS or not dot or part == "options":
        return
    chooser, registry = OPTION_OWNERS[section]
    owners = [name for name, entry in registry.items() if getattr(entry, "section", "") == part]
    chosen = getattr(getattr(scenario, section), chooser)
    if owners and chosen not in owners:
        raise ConfigError(
            f'{key} has no effect with {section}.{chooser} = "{chosen}": set {section}.{chooser} = "{owners[0]}", or '
            "leave it out."
        )


def _rename(tree: dict[str, Any]) -> None:
    """Bring the settings of an older run up to date; one of version 0.1 used the paper's form."""
    moved = dict(RENAMED)
    if "form" not in tree.setdefault("control", {}):
        tree["control"]["form"] = "paper"
        moved["control.energy_weight"] = "control.paper.energy_weight"
    tree.setdefault("same_size", {"cpu": "joint"})  # before there were two readings
    if tree.get("principle", {}).pop("unit", "") == "intervals":
        tree["principle"]["form"] = "published"
    for old, new in moved.items():
        section, key = old.split(".")
        if key in tree.get(section, {}):
            place_setting(tree, new, tree[section].pop(key))


def scenario_from_dict(tree: Mapping[str, Any], *, read_files: bool = True) -> Scenario:
    """Validate a tree of sections as TOML gives it.

    A trace and devices are known by the digests of their files, which are computed here if the tree does not state
    them. Without `read_files` no file is opened: settings that somebody else wrote may name any.
    """
    try:
        scenario = Scenario.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None
    radio, devices = scenario.radio, scenario.devices
    if not read_files:
        return scenario
    if radio.trace and not radio.trace_digest:  # it is part of the run's identity: another file is another run
        scenario = scenario.replaced(radio={"trace_digest": trace_digest(radio.trace)})
    if not devices.is_papers:
        if devices.table and "num_clients" not in tree.get("federation", {}):
            scenario = scenario.replaced(federation={"num_clients": len(read_clients(devices.table).rows)})
        if not devices.digest:
            scenario = scenario.replaced(devices={"digest": devices.files_digest()})
    return scenario


def read_settings(source: str | Path) -> dict[str, Any]:
    """The tree of sections of a preset or a TOML file, not validated yet."""
    tree = _own_settings(source)
    base = tree.pop("preset", None)
    if base is None:
        return tree
    if base not in PRESETS:
        raise ConfigError(f'preset = "{base}" in {source} does not exist: {hint(str(base), PRESETS)}')
    return _merged(read_settings(base), tree)


def _own_settings(source: str | Path) -> dict[str, Any]:
    """What a preset or a TOML file states itself, and the preset that it begins with."""
    name = str(source)
    if name in PRESETS:
        preset = resources.files("qccf.settings").joinpath("presets", f"{name}.toml")
        return tomllib.loads(preset.read_text(encoding="utf-8"))
    neither = f"neither a preset ({', '.join(PRESETS)}) nor a file"
    found = closest(name, PRESETS)
    if found and not Path(source).exists():
        raise ConfigError(f"{name!r} is {neither}: did you mean {found}?")
    return read_toml(Path(source), neither)


FEDERATION = ("federation", "data", "cell", "radio", "device", "devices")
"""Sections that say what the federation is, and not how it learns or decides."""


def with_layer(scenario: Scenario, source: str) -> Scenario:
    """The same federation with the settings in which a preset or file differs from the preset that it begins with.

    Powers stay fixed where the rates are not Shannon's, because nobody knows there how a rate falls with the power.
    What states no label gets the name of its preset or file, so that results tell it from the federation itself.
    """
    layer = _own_settings(source)
    layer.pop("preset", None)
    foreign = [section for section in FEDERATION if section in layer]
    if foreign:
        raise ConfigError(
            f"{source} states [{foreign[0]}], so it would be another federation: name a preset or file that states "
            "only how a federation learns and decides, such as lean."
        )
    if scenario.radio.rate != "shannon" or scenario.radio.trace:
        layer.get("control", {}).pop("power", None)
    if isinstance(policy := layer.setdefault("policy", {}), dict):
        policy["label"] = policy.get("label") or Path(source).stem
    return scenario_from_dict(_merged(scenario.model_dump(exclude_unset=True), layer))


def read_toml(path: Path, absent: str = "not a file") -> dict[str, Any]:
    """A TOML file as plain values; `absent` describes a path that cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{str(path)!r} is {absent}: {error.strerror or 'it cannot be read'}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{str(path)!r} is not a text file: write the settings as TOML in UTF-8.") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {str(error).rstrip('.')}.") from None


def with_settings(tree: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A tree with other values at some `section.key`. It drops what belonged to a replaced model or dataset."""
    layer: dict[str, Any] = {}
    for path, value in changes.items():
        place_setting(copy.deepcopy(tree), path, value)  # refuses a path through a value
        place_setting(layer, path, value)
    return _merged(tree, layer)


def _merged(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `top`. Values that belong to a replaced model or dataset are dropped with it."""
    result = dict(base)
    for key, value in top.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merged(_without_dependents(old, value, key), value)
        else:
            result[key] = value
    return result


def _without_dependents(section: dict[str, Any], top: dict[str, Any], name: str) -> dict[str, Any]:
    """What belongs to a value of a preset is dropped with it, such as the fallbacks of its dataset.

    So is what another key takes the place of, such as the number of local steps where a batch size is given.
    """
    for owner, dependents in DEPENDENTS.items():
        where, _, key = owner.partition(".")
        if name == where and key in top and top[key] != section.get(key):
            section = {one: value for one, value in section.items() if one not in dependents}
    given = [key for key in ALTERNATIVES.get(name, ()) if top.get(key)]
    if len(given) == 1:
        section = {one: value for one, value in section.items() if one not in ALTERNATIVES[name]}
    return section


def _parsed(override: str) -> tuple[str, Any]:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or len(keys) < 2 or not all(keys):
        found = setting_like(keys[0]) if equals and len(keys) == 1 else None
        such = f"did you mean {found}={text}?" if found else "such as radio.bandwidth_hz=2e7."
        raise ConfigError(f"--set {override!r} is not of the form section.key=value: {such}")
    try:
        return path.strip(), tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError):
        return path.strip(), text.strip()


def place_setting(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at `section.key` of a tree."""
    *sections, last = path.split(".")
    node = tree
    for key in sections:
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{path} cannot be set: {key!r} is a value, not a section.")
        node = child
    node[last] = value


BRANCHES = ("float", "int", "literal['auto']", "literal['device']", "constrained-float")
"""What pydantic adds to the place of a mistake in a key that may be a word or a number."""

WORDS = {"device.cycles_per_sample": "auto", "accounts.idle_power_w": "device"}
"""Keys that may be a number or this word."""


def _sentence(error: ValidationError) -> str:
    """The first mistake as one sentence with key, value, limit and remedy."""
    errors = error.errors()
    first = errors[0]
    key = ".".join(str(part) for part in first["loc"] if part not in BRANCHES)
    if key in WORDS and len(errors) > 1:  # the number's mistake says more than that it is not the word
        first = errors[1]
    limits = first.get("ctx", {})
    value = first["input"]
    kind = first["type"]
    if kind == "extra_forbidden":
        renamed = f"it is called {RENAMED[key]} now." if key in RENAMED else _similar(first["loc"])
        return f"{key} is not a setting; {renamed}"
    if kind == "value_error":
        return f"{key + ': ' if key else ''}{limits['error']}."
    bounds = {
        "greater_than_equal": ("at least", "ge"),
        "greater_than": ("more than", "gt"),
        "less_than_equal": ("at most", "le"),
        "less_than": ("less than", "lt"),
    }
    if key == "control.energy_weight" and kind == "less_than_equal":
        return (
            f"{key} = {value!r} is out of range: it must be at most {limits['le']:g}, and 1 is balanced; the paper's V "
            "is control.paper.energy_weight."
        )
    if kind in bounds:
        words, name = bounds[kind]
        return f"{key} = {value!r} is out of range: it must be {words} {limits[name]:g}{_unit_hint(key)}."
    if key == "control.paper.data_budget":
        return f'{key} = {value!r} is neither "auto" nor a number from 0 to 1e15.'
    if kind == "literal_error":
        found = closest(str(value), re.findall(r"'([^']*)'", limits["expected"]))
        likely = f" (did you mean {found!r}?)" if found else ""
        choices = limits["expected"].replace("False", "false").replace("True", "true")
        return f"{key} = {value!r} is not one of {choices}{likely}."
    if key in WORDS and isinstance(value, str):
        return f'{key} = {value!r} is neither "{WORDS[key]}" nor a number{_unit_hint(key)}.'
    wanted = {
        "float_type": "a number",
        "finite_number": "a finite number",
        "int_type": "a whole number",
        "bool_type": "true or false",
        "string_type": "a text",
        "model_type": "a section",
        "dict_type": "a table",
    }.get(kind)
    if wanted:
        return f"{key} = {value!r} is not {wanted}{_unit_hint(key)}."
    return f"{key} = {value!r}: {first['msg'][0].lower()}{first['msg'][1:]}."


def _unit_hint(key: str) -> str:
    units = {
        "_dbm_per_hz": "dBm/Hz", "_hz": "hertz", "_s": "seconds", "_w": "watts", "_db": "decibels", "_m": "metres",
    }  # fmt: skip
    for suffix, unit in units.items():
        if key.endswith(suffix):
            return f", in {unit}"
    return ""


def _similar(location: tuple[int | str, ...]) -> str:
    """The key that was probably meant, or the known ones."""
    model: Any = Scenario
    for part in location[:-1]:
        model = model.model_fields[part].annotation
    found = closest(str(location[-1]), model.model_fields)
    path = ".".join([*map(str, location[:-1]), found]) if found else setting_like(str(location[-1]))
    if path:
        return f"did you mean {path}?"
    return f"known here: {', '.join(model.model_fields)}."


def setting_like(key: str) -> str | None:
    """The setting whose last part is most like `key`, whatever its section."""
    from qccf.settings.reference import settings_reference

    paths = {info.key: info.path for info in settings_reference()}
    found = closest(key, paths)
    return paths[found] if found else None


def own_names(scenario: Scenario) -> dict[str, str]:
    """The users' own entries (`module:Class`) that settings name, by the key that names them."""
    tree = scenario.model_dump()
    named = {key: tree[key.partition(".")[0]][key.partition(".")[2]] for key in PLUGINS}
    texts = {key: value if isinstance(value, list) else [value] for key, value in named.items()}
    return {key: name for key, names in texts.items() for name in names if is_own(name)}


def digest(*parts: Any) -> str:
    """A hexadecimal name for plain values: equal values have equal names."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def run_digest(scenario: Scenario, *more: Any) -> str:
    """The digest of a run's settings, and of the users' own code that they name.

    How a run is executed, apart from precision and device, is not part of it.
    """
    tree = scenario.model_dump(exclude={"execution": {"workers", "checkpoint_every"}})
    code = own_code(scenario)
    return digest(tree, *more, *([code] if code else []))


def own_code(scenario: Scenario) -> str:
    """The digest of the users' own code that settings name; empty where they name none."""
    return source_digest(own_names(scenario).values())


def scenario_to_toml(scenario: Scenario) -> str:
    """The scenario as a file that `load_scenario` reads back."""
    return tomli_w.dumps(scenario.model_dump())
