"""The sections `device` and `devices` of the settings, and the devices of a federation that they state."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from qccf.core.errors import ConfigError
from qccf.core.words import counted
from qccf.devices.clients_table import ClientsTable, files_digest, read_clients
from qccf.devices.fleet import Fleet, build_fleet, mixed, with_figures
from qccf.devices.profile import Profile, require_plausible, stated_profile
from qccf.devices.profiles.registry import PROFILES, find_profile
from qccf.learning.models.flops import flops_per_sample
from qccf.settings.sections import Section, file_key, key

if TYPE_CHECKING:
    from qccf.settings.schema import Scenario

MAX_DEADLINE_S = 86_400.0
PAPER = "paper"

Share = Annotated[float, Field(gt=0, le=1e6)]


class DeviceSection(Section):
    """The deadline of a round, and the processor of clients with the profile `paper`."""

    deadline_s: float = key(0.02, "deadline for training and uploading, T_max", ge=1e-5, le=MAX_DEADLINE_S)
    cycles_per_sample: Literal["auto"] | Annotated[float, Field(ge=1, le=1e12)] = key(
        1000.0, 'CPU cycles per sample and epoch, γ; "auto" divides the model\'s operations by flops_per_cycle'
    )
    flops_per_cycle: float = key(
        8.0, 'floating-point operations per cycle where cycles_per_sample = "auto"', ge=1e-4, le=1e6
    )
    energy_coefficient: float = key(1e-26, "energy per cycle and squared frequency, α", ge=1e-32, le=1e-18)
    frequency_min_hz: float = key(2e8, "lowest CPU frequency", ge=1e6, le=1e11)
    frequency_max_hz: float = key(1e9, "highest CPU frequency", ge=1e6, le=1e11)
    battery_j: float = key(0.0, "energy of a full battery; 0 for mains", ge=0, le=1e12)

    @model_validator(mode="after")
    def _range(self) -> "DeviceSection":
        if self.frequency_min_hz > self.frequency_max_hz:
            raise ValueError(
                f"frequency_min_hz = {self.frequency_min_hz:g} is above frequency_max_hz = {self.frequency_max_hz:g}: "
                "swap them"
            )
        return self


class DevicesSection(Section):
    """Which devices the clients are: one profile, a mix of profiles, or a table with a row for each client."""

    profile: str = file_key(
        PAPER,
        f"profile of all clients: {', '.join(PROFILES)}, or the path of your own TOML file; `paper` is [device] and "
        "the transmit and circuit power of [radio]",
        names=PROFILES,
    )
    mix: dict[str, Share] = file_key(
        {}, "shares of several profiles, such as { raspberry-pi-4 = 0.5, pixel-2 = 0.5 }", names=PROFILES
    )
    table: str = file_key("", "CSV or Parquet file with a row for each client; see `docs/devices.md`")
    digest: str = file_key(
        "",
        "SHA-256 of the table and of your own profiles; filled in when the settings are loaded, and checked",
        max_length=64,
    )
    charge: float = key(1.0, "how full batteries are at the start", gt=0, le=1)
    nodes: dict[str, dict[str, Any]] = key(
        {}, "profiles that the nodes of a Flower federation stated, by client; the server fills it in"
    )

    @model_validator(mode="after")
    def _one_source(self) -> "DevicesSection":
        if self.mix and (self.table or self.profile != PAPER):
            other = "table" if self.table else "profile"
            raise ValueError(f"mix contradicts {other} = {getattr(self, other)!r}: give one of them")
        return self

    @model_validator(mode="after")
    def _nodes_state_profiles(self) -> "DevicesSection":
        for client, tree in self.nodes.items():
            if not client.isdecimal():
                raise ValueError(f"nodes.{client} is not the number of a client: count from 0")
            try:
                stated_profile(tree)
            except ConfigError as error:
                raise ValueError(f"nodes.{client}: {str(error).rstrip('.')}") from None
        return self

    @model_serializer(mode="wrap")
    def _without_empty_nodes(self, to_dict: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without stated devices the key is left out, so that the digest of such a run is what it was before."""
        tree: dict[str, Any] = to_dict(self)
        return {name: value for name, value in tree.items() if name != "nodes" or value}

    @property
    def is_papers(self) -> bool:
        """Whether every client is the paper's device."""
        return self.profile == PAPER and not self.mix and not self.table and not self.nodes

    @property
    def may_be_papers(self) -> bool:
        """Whether some client may be the paper's device."""
        if not self.table:
            return PAPER in self.mix or self.is_papers
        try:
            return any(row.get("profile", self.profile) == PAPER for row in read_clients(self.table).rows)
        except ConfigError:
            return True  # not known without the file

    def files_digest(self) -> str:
        """SHA-256 of the files that are named; empty where none is, or one cannot be read."""
        names = [self.table, self.profile, *self.mix] if self.table else [self.profile, *self.mix]
        if self.table:
            try:
                names += [str(row.get("profile", "")) for row in read_clients(self.table).rows]
            except ConfigError:
                return ""
        files = [name for name in dict.fromkeys(names) if name and (name == self.table or name.endswith(".toml"))]
        return files_digest(files)

    def described(self) -> str:
        """The devices in a few words, for where joules are shown."""
        if self.nodes:
            others = self.model_copy(update={"nodes": {}}).described()
            return f"{others} and the profiles stated by {counted(len(self.nodes), 'node')}"
        if self.table:
            return f"the devices in {self.table}"
        if self.mix:
            total = sum(self.mix.values())
            return "the mix " + ", ".join(f"{share / total:.0%} {name}" for name, share in self.mix.items())
        return f"profile {self.profile}"


def check_devices(scenario: "Scenario") -> None:
    """Refuse a profile or a table that cannot be used; no model is counted for it."""
    scenario_fleet(scenario, scenario.federation.seed, flops=lambda: 1.0)


def model_flops(scenario: "Scenario") -> float:
    """Operations of training on one sample: stated, or counted in the model."""
    learning = scenario.learning
    return learning.flops_per_sample or flops_per_sample(
        learning.model, learning.model_options, scenario.data.dataset, learning.num_parameters
    )


def scenario_fleet(scenario: "Scenario", seed: int, flops: Callable[[], float] | None = None) -> Fleet:
    """The devices of a scenario's clients in the world of this seed. `flops` are the model's, counted by default."""
    devices, count = scenario.devices, scenario.federation.num_clients
    flops = flops or (lambda: model_flops(scenario))
    if devices.digest and devices.files_digest() not in ("", devices.digest):
        raise ConfigError(
            "the files that [devices] names are not those with which this run began (their content has changed): "
            "restore them."
        )
    if not devices.table:
        names = mixed(devices.mix, count, seed) if devices.mix else [devices.profile] * count
        kinds = {name: _profile(name, scenario) for name in dict.fromkeys(names)}
        profiles = _with_stated([kinds[name] for name in names], devices)
        return build_fleet(profiles, flops, charge=devices.charge)
    table = read_clients(devices.table)
    if len(table.rows) != count:
        raise ConfigError(
            f"devices.table = {devices.table!r} has {len(table.rows)} rows, but federation.num_clients = {count}: set "
            f"it to {len(table.rows)}, or give one row for each client."
        )
    try:
        profiles = _table_profiles(table, scenario)
        positions_m = _positions_m(table, scenario)
        sizes = table.column("dataset_size")
    except ConfigError as error:
        raise ConfigError(f"devices.table = {devices.table!r}: {error}") from None
    fleet = build_fleet(_with_stated(profiles, devices), flops, charge=devices.charge)
    return Fleet(
        fleet.names, fleet.constants, fleet.batteries_j, None if sizes is None else np.array(sizes), positions_m
    )


def _with_stated(profiles: list[Profile], devices: DevicesSection) -> list[Profile]:
    """The profiles with those of the clients whose nodes state another."""
    kinds: dict[str, Profile] = {}
    changed = list(profiles)
    for client, tree in devices.nodes.items():
        if int(client) >= len(profiles):
            raise ConfigError(f"devices.nodes names client {client}, but there are clients 0 to {len(profiles) - 1}.")
        text = json.dumps(tree, sort_keys=True)
        if text not in kinds:  # equal devices are one object, so that their constants stay one number
            kinds[text] = stated_profile(tree)
        changed[int(client)] = kinds[text]
    return changed


def _table_profiles(table: ClientsTable, scenario: "Scenario") -> list[Profile]:
    kinds: dict[str, Profile] = {}
    profiles = []
    for index, row in enumerate(table.rows):
        name = row.get("profile", scenario.devices.profile)
        try:
            if name not in kinds:
                kinds[name] = _profile(name, scenario)
            profiles.append(with_figures(kinds[name], row))
        except ConfigError as error:
            raise ConfigError(f"row {index + 1}: {error}") from None
    return profiles


def _positions_m(table: ClientsTable, scenario: "Scenario") -> Any:
    cell = scenario.cell
    x_m, y_m = table.column("x_m"), table.column("y_m")
    if x_m is None or y_m is None:
        return None
    if cell.positions_m:
        raise ConfigError("it has positions, and so has cell.positions_m: give one of them.")
    for index, place in enumerate(zip(x_m, y_m, strict=True)):
        away_m = math.hypot(*place)
        if not cell.distance_min_m * (1 - 1e-9) <= away_m <= cell.radius_m * (1 + 1e-9):
            raise ConfigError(
                f"row {index + 1} is {away_m:g} m from the base station, outside cell.distance_min_m = "
                f"{cell.distance_min_m:g} to cell.radius_m = {cell.radius_m:g}: move the client, or change the cell."
            )
    return np.stack([np.array(x_m), np.array(y_m)], axis=1)


def _profile(name: str, scenario: "Scenario") -> Profile:
    """The profile of that name; the paper's has the values of the settings."""
    if name != PAPER:
        return find_profile(name)
    device, radio = scenario.device, scenario.radio
    require_plausible(device.model_dump())
    return Profile(
        name=PAPER,
        title=find_profile(PAPER).title,
        cycles_per_sample=device.cycles_per_sample,
        flops_per_cycle=device.flops_per_cycle,
        energy_coefficient=device.energy_coefficient,
        frequency_min_hz=device.frequency_min_hz,
        frequency_max_hz=device.frequency_max_hz,
        transmit_power_w=radio.transmit_power_w,
        circuit_power_w=radio.circuit_power_w,
        battery_j=device.battery_j or math.inf,
    )
