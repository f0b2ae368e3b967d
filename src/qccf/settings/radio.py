"""The sections `cell` and `radio` of the settings, and what they become in the linear units of the core."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import create_model, model_validator

from qccf.core.registry import Registry
from qccf.core.units import dbm_to_w
from qccf.devices.radio_power.protocol import RadioPower
from qccf.devices.radio_power.registry import RADIO_POWERS, build_radio_power
from qccf.settings.sections import Section, file_key, key, option_values, section_model
from qccf.wireless.cell import Walk
from qccf.wireless.neighbours import Neighbours
from qccf.wireless.path_loss.registry import PATH_LOSSES
from qccf.wireless.placement import Ring
from qccf.wireless.radio import LineOfSight, Radio, resource_blocks_hz
from qccf.wireless.rates.protocol import RateModel
from qccf.wireless.rates.registry import RATE_MODELS
from qccf.wireless.traces.trace import TraceEnd

MAX_GAIN_DB = 100.0
MAX_RESOURCE_BLOCKS = 275
"""Of one carrier. 3GPP TS 38.211, 4.4.2."""


class CellSection(Section):
    """Positions of the clients, path loss, and neighbouring cells."""

    radius_m: float = key(500.0, "radius of the cell", ge=2, le=5000)
    distance_min_m: float = key(10.0, "least distance from the base station", ge=1, le=5000)
    positions_m: list[list[float]] = key(
        [], "position [x, y] of each client, with the base station at [0, 0]; empty draws them in every cell"
    )
    path_loss: str = key("umi", "path-loss model: umi, uma, inh, inh-open, log-distance, or your own as module:Class")
    line_of_sight: LineOfSight = key("always", "whether clients see the base station")
    shadowing: bool = key(False, "whether log-normal shadow fading is added")
    carrier_hz: float = key(2.4e9, "carrier frequency", ge=0.5e9, le=100e9)
    base_height_m: float = key(10.0, "height of the base station", ge=2, le=200)
    client_height_m: float = key(1.5, "height of the clients", ge=1, le=22.5)
    walk_step_m: float = key(0.0, "distance that each client walks between two rounds; 0 stands still", ge=0, le=1000)
    decorrelation_m: float = key(
        13.0, "distance over which the shadowing of a walking client decorrelates to 1/e", ge=0.1, le=1000
    )
    neighbours: int = key(0, "neighbouring cells whose clients interfere; 0 for none", ge=0, le=100)
    neighbour_distance_m: float = key(1000.0, "distance of their base stations from ours", ge=2, le=50_000)
    neighbour_load: float = key(1.0, "share of their channels that are in use", ge=0, le=1)

    @model_validator(mode="after")
    def _ring(self) -> "CellSection":
        if self.distance_min_m >= self.radius_m:
            raise ValueError(
                f"distance_min_m = {self.distance_min_m:g} leaves no room inside radius_m = {self.radius_m:g}: "
                "lower the distance or raise the radius"
            )
        for client, position in enumerate(self.positions_m):
            if len(position) != 2:
                raise ValueError(f"positions_m[{client}] has {len(position)} numbers: give [x, y] in metres")
            if not self.distance_min_m * (1 - 1e-9) <= math.hypot(*position) <= self.radius_m * (1 + 1e-9):
                raise ValueError(
                    f"positions_m[{client}] is {math.hypot(*position):g} m from the base station, outside "
                    f"distance_min_m = {self.distance_min_m:g} to radius_m = {self.radius_m:g}: move the client"
                )
        return self

    @model_validator(mode="after")
    def _within_the_model(self) -> "CellSection":
        """A model of ours states the distances for which it holds."""
        if self.path_loss not in PATH_LOSSES:
            return self
        least_m, most_m = getattr(PATH_LOSSES[self.path_loss], "distances_m", (0.0, float("inf")))
        for name, wrong, words in (
            ("distance_min_m", self.distance_min_m < least_m, f"at least {least_m:g}"),
            ("radius_m", self.radius_m > most_m, f"at most {most_m:g}"),
        ):
            if wrong:
                raise ValueError(
                    f"{name} = {getattr(self, name):g} is out of range for path_loss = {self.path_loss!r}: it must be "
                    f"{words}, in metres"
                )
        return self

    def walk(self) -> Walk | None:
        return Walk(self.walk_step_m, self.decorrelation_m) if self.walk_step_m else None

    def interferers(self) -> Neighbours | None:
        ring = Ring(self.radius_m, self.distance_min_m)
        if not self.neighbours:
            return None
        return Neighbours(self.neighbours, self.neighbour_distance_m, self.neighbour_load, ring)


class _RadioKeys(Section):
    """The uplink."""

    num_channels: int = key(10, "number of OFDMA channels, C", ge=1, le=100_000)
    bandwidth_hz: float = key(10e6, "bandwidth of one channel, B", ge=1e3, le=10e9)
    resource_blocks: int = key(
        0, "instead of bandwidth_hz: resource blocks of one channel, 12 subcarriers each", ge=0, le=MAX_RESOURCE_BLOCKS
    )
    numerology: int = key(0, "numerology μ of resource blocks: subcarriers of 15 kHz·2^μ", ge=0, le=6)
    transmit_power_w: float = key(0.2, "transmit power of a client, p", ge=1e-6, le=10)
    transmit_power_min_w: float = key(
        0.01, 'least transmit power where control.power = "adapted"; at most transmit_power_w', ge=1e-9, le=10
    )
    circuit_power_w: float = key(0.0, "what a radio takes besides its transmit power while it sends", ge=0, le=100)
    power: str = key(
        "radiated",
        "what a radio takes while it sends: radiated (and circuit_power_w), ue (3GPP TR 38.840), or your own as "
        "module:Class",
    )
    power_options: dict[str, Any] = key({}, "options passed to a radio power of your own")
    noise_dbm_per_hz: float = key(-174.0, "noise power density, N0", ge=-210, le=-90)
    interference_margin_db: float = key(0.0, "interference as a rise of the noise", ge=0, le=60)
    gain_db: float = key(0.0, "antenna and other gain, h_Gain", ge=-100, le=MAX_GAIN_DB)
    rician_k: float = key(4.0, "Rician factor K (linear)", ge=0, le=1e4)
    fading_mean_power: float = key(1.0, "mean power of the fading, ζ", gt=0, le=1e4)
    fading_correlation: float = key(
        0.0, "correlation of the scattered paths of two successive rounds (Gauss–Markov), ρ", ge=0, lt=1
    )
    rate: str = key("shannon", "rate from signal and noise: shannon, shannon-gap, mcs, or your own as module:Class")
    rate_options: dict[str, Any] = key({}, "options passed to a rate model of your own")
    estimate_error_db: float = key(
        0.0, "standard deviation of the error of the gains that the server decides with", ge=0, le=40
    )
    estimate_age: int = key(0, "age of these gains in rounds", ge=0, le=100)
    backoff_db: float = key(0.0, "what the server takes off the gains that it decides with", ge=0, le=60)
    trace: str = file_key("", "file or folder with the rates or gains of all rounds, instead of the models above")
    trace_form: str = key("table", "form of the trace: table, ucc-5g, ray-traced, or your own as module:function")
    trace_end: TraceEnd = key("wrap", "after the last round of the trace: begin again, or refuse a longer run")
    trace_digest: str = file_key(
        "", "SHA-256 of the trace; filled in when the settings are loaded, and checked", max_length=64
    )

    @model_validator(mode="before")
    @classmethod
    def _bandwidth_of_blocks(cls, tree: Any) -> Any:
        """State the bandwidth that the resource blocks have."""
        if not isinstance(tree, dict):
            return tree
        count, numerology = tree.get("resource_blocks", 0), tree.get("numerology", 0)
        if not (isinstance(count, int) and isinstance(numerology, int) and 0 <= numerology <= 6):
            return tree  # refused by the limits of the keys
        if count <= 0:
            if numerology:
                raise ValueError(f"numerology = {numerology} has no effect without resource_blocks: set both or none")
            return tree
        bandwidth_hz = resource_blocks_hz(count, numerology)
        if tree.get("bandwidth_hz", bandwidth_hz) != bandwidth_hz:
            raise ValueError(
                f"bandwidth_hz = {tree['bandwidth_hz']:g} contradicts resource_blocks = {count} with numerology = "
                f"{numerology}, which are {bandwidth_hz:g} Hz: leave one of them out"
            )
        return tree | {"bandwidth_hz": bandwidth_hz}

    @model_validator(mode="after")
    def _own_options(self) -> "_RadioKeys":
        if self.rate_options and self.rate in RATE_MODELS:
            section = getattr(RATE_MODELS[self.rate], "section", "")
            remedy = f"use radio.{section}" if section else "leave them out"
            raise ValueError(f"rate_options are for a rate model of your own, not for rate = {self.rate!r}: {remedy}")
        return self

    @model_validator(mode="after")
    def _one_power(self) -> "_RadioKeys":
        if self.power_options and self.power in RADIO_POWERS:
            raise ValueError(
                f"power_options are for a radio power of your own, not for power = {self.power!r}: use radio.ue"
            )
        if self.power == "ue" and self.circuit_power_w:
            raise ValueError(
                f'circuit_power_w = {self.circuit_power_w:g} contradicts power = "ue", which is the whole radio: leave '
                "one of them out"
            )
        return self

    def radio_power(self) -> RadioPower:
        entry: Any = RADIO_POWERS.find(self.power)
        section = getattr(entry, "section", "") if self.power in RADIO_POWERS else ""
        options = option_values(entry, getattr(self, section)) if section else self.power_options
        return build_radio_power(self.power, options)

    def rate_model(self) -> RateModel:
        entry: Any = RATE_MODELS.find(self.rate)
        section = getattr(entry, "section", "") if self.rate in RATE_MODELS else ""
        options = option_values(entry, getattr(self, section)) if section else self.rate_options
        model: RateModel = RATE_MODELS.build(self.rate, **options)
        return model


def _entry_sections(registry: Registry[Any]) -> Iterator[tuple[str, Any]]:
    """One section per entry with options."""
    for entry in registry.values():
        section = getattr(entry, "section", "")
        if section:
            model = section_model(f"{section.title().replace('_', '')}Section", entry)
            yield section, (model, model())


if TYPE_CHECKING:

    class RadioSection(_RadioKeys):
        mcs: Any = None
        shannon_gap: Any = None
        ue: Any = None

else:
    RadioSection = create_model(
        "RadioSection",
        __base__=_RadioKeys,
        __module__=__name__,
        __doc__=_RadioKeys.__doc__,
        **dict(_entry_sections(RATE_MODELS)),
        **dict(_entry_sections(RADIO_POWERS)),
    )


def linear_radio(cell: CellSection, radio: RadioSection) -> Radio:
    """The radio in linear units."""
    return Radio(
        num_channels=radio.num_channels,
        bandwidth_hz=radio.bandwidth_hz,
        transmit_power_w=radio.transmit_power_w,
        noise_w_per_hz=float(dbm_to_w(radio.noise_dbm_per_hz + radio.interference_margin_db)),
        gain_db=radio.gain_db,
        path_loss=cell.path_loss,
        line_of_sight=cell.line_of_sight,
        shadowing=cell.shadowing,
        carrier_hz=cell.carrier_hz,
        base_height_m=cell.base_height_m,
        client_height_m=cell.client_height_m,
        rician_k=radio.rician_k,
        fading_mean_power=radio.fading_mean_power,
        rate_model=radio.rate_model(),
        fading_correlation=radio.fading_correlation,
        estimate_error_db=radio.estimate_error_db,
        estimate_age=radio.estimate_age,
        backoff_db=radio.backoff_db,
    )
