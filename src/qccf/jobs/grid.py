"""The grid of a sweep, from a TOML file: a base scenario, fixed settings, and a list of values per axis."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from qccf.core.errors import ConfigError
from qccf.settings.loading import (
    Scenario,
    read_settings,
    read_toml,
    refuse_unused,
    run_digest,
    scenario_from_dict,
    with_settings,
)

Kind = Literal["train", "plan", "measure"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SHORT = {"policy": "policy.name", "codec": "codec.name", "seed": "federation.seed"}
"""Short names of settings."""

MAX_RUNS = 100_000


@dataclass(frozen=True)
class Grid:
    """The kind of a sweep and the scenario of every run, which holds its policy, codec and seed."""

    kind: Kind
    scenarios: tuple[Scenario, ...]


def load_grid(path: Path) -> Grid:
    """Read the file and validate every scenario of its grid; the last axis varies fastest."""
    tree = read_toml(path)
    for key in tree:
        if key not in ("scenario", "kind", "settings", "grid"):
            raise ConfigError(f"{path}: {key!r} is not a key of a sweep: it has scenario, kind, [settings] and [grid].")
    kind = tree.get("kind", "train")
    if kind not in KINDS:
        raise ConfigError(f"{path}: kind = {kind!r} is not one of {', '.join(KINDS)}.")
    base = read_settings(_base(path, tree.get("scenario", "femnist")))
    fixed = {_setting(key): value for key, value in _flat(_table(path, tree, "settings")).items()}
    base = with_settings(base, fixed)
    axes = [_axis(key, values) for key, values in _flat(_table(path, tree, "grid")).items()]
    count = math.prod(len(axis) for axis in axes)
    if count > MAX_RUNS:
        raise ConfigError(f"{path}: the grid makes {count:,} runs, more than {MAX_RUNS:,}: shorten its lists.")
    scenarios = tuple(_scenario(base, changes) for changes in itertools.product(*axes))
    require_distinct(scenarios)
    return Grid(kind, scenarios)


def _base(path: Path, scenario: Any) -> str | Path:
    """A preset, or a file whose path is relative to the sweep's file."""
    if not isinstance(scenario, str):
        raise ConfigError(f"{path}: scenario = {scenario!r} is not text: name a preset or a TOML file.")
    beside = path.parent / scenario
    return beside if beside.is_file() else scenario


def _table(path: Path, tree: dict[str, Any], key: str) -> dict[str, Any]:
    table = tree.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {key} = {table!r} is not a table: write [{key}] and a line for each setting.")
    return table


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys to values: TOML makes nested tables of a key with dots, unless the key is in quotes."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _setting(key: str) -> str:
    path = SHORT.get(key, key)
    if "." not in path:
        raise ConfigError(
            f"{key!r} is not a setting: write section.key, such as radio.bandwidth_hz, or {', '.join(SHORT)}."
        )
    return path


def _axis(key: str, values: Any) -> list[dict[str, Any]]:
    """The settings that each value of an axis changes; a value that is a table changes several together."""
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{key} = {values!r} in [grid] is not a list of values: give a list, or use [settings].")
    if all(isinstance(value, dict) for value in values):
        return [{_setting(name): each for name, each in _flat(value).items()} for value in values]
    return [{_setting(key): value} for value in values]


def _scenario(base: dict[str, Any], changes: tuple[dict[str, Any], ...]) -> Scenario:
    together = {path: value for change in changes for path, value in change.items()}
    scenario = scenario_from_dict(with_settings(base, together))
    refuse_unused(scenario, together)
    return scenario


def require_distinct(scenarios: tuple[Scenario, ...]) -> None:
    """Refuse a grid that makes the same run twice."""
    seen: set[str] = set()
    for scenario in scenarios:
        policy, seed = scenario.policy.name, scenario.federation.seed
        key = run_digest(scenario)
        if key in seen:
            raise ConfigError(
                f"the grid makes the same run twice (policy {policy}, seed {seed}): remove the repeated value, "
                "or the axis that does not change a run, such as execution.workers."
            )
        seen.add(key)
