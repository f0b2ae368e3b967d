"""The bodies of requests: their types, and the scenario that they ask for.

Names of the user's own code (`module:Class`) and paths are refused: whoever may send a request must not choose which
code runs here, or which file is read.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qccf.core.contracts import MAX_NUM_BITS
from qccf.core.errors import ConfigError
from qccf.core.registry import is_own
from qccf.core.words import counted
from qccf.learning.models.flops import STORED
from qccf.service.answers import RefusedError
from qccf.service.setup import Setup
from qccf.settings.loading import Scenario, load_scenario, with_settings
from qccf.settings.problem import ERRORS, PER_CLIENT, RATES, parse_json
from qccf.settings.reference import settings_reference
from qccf.settings.schema import BUNDLED_TRACES

MOST_SEEDS = 200
MOST_NAMES = 16
SIZES = (0.0, 1e18)
PATH = re.compile(r"[/\\]|\.(csv|json|npz|parquet|pkl|pt|py|toml|txt)$", re.IGNORECASE)
"""What the name of a file looks like. No name of a setting, of a policy or of a codec does."""

Body = TypeVar("Body", bound="_Body")


def _within(limits: tuple[float, float]) -> Any:
    return Field(ge=limits[0], le=limits[1])


Rate = Annotated[float, _within(RATES)]
Samples = Annotated[float, _within(PER_CLIENT["dataset_sizes"])]
NormSq = Annotated[float, _within(PER_CLIENT["gradient_norms_sq"])]
Variance = Annotated[float, _within(PER_CLIENT["gradient_variances"])]
Range = Annotated[float, _within(PER_CLIENT["weight_ranges"])]
Error = Annotated[float, _within(ERRORS)]
Size = Annotated[float, _within(SIZES)]
Errors = Annotated[list[Error], Field(min_length=MAX_NUM_BITS, max_length=MAX_NUM_BITS)]
Sizes = Annotated[list[Size], Field(min_length=MAX_NUM_BITS, max_length=MAX_NUM_BITS)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ScenarioBody(_Body):
    """A preset, and the settings that differ from it by their names `section.key`, as `--set` takes them."""

    preset: Literal["femnist", "cifar10", "quick", "lean", "3gpp", "iot", "paper-table"] = "femnist"
    settings: dict[str, Any] = Field({}, examples=[{"radio.bandwidth_hz": 2e7, "federation.num_clients": 20}])


class PlanBody(ScenarioBody):
    """What to plan: every policy with every codec in `seeds` cells."""

    policies: list[str] | None = Field(None, min_length=1, max_length=MOST_NAMES, examples=[["qccf", "same-size"]])
    codecs: list[str] | None = Field(None, min_length=1, max_length=MOST_NAMES, examples=[["update+entropy"]])
    seeds: int = Field(4, ge=1, le=MOST_SEEDS)


class FileBody(ScenarioBody):
    """A scenario, and the plan that is to be made with it."""

    policies: list[str] | None = Field(None, min_length=1, max_length=MOST_NAMES)
    codecs: list[str] | None = Field(None, min_length=1, max_length=MOST_NAMES)
    seeds: int | None = Field(None, ge=1, le=MOST_SEEDS)


class RoundBody(_Body):
    """What is known at the start of a round; from the second round on only what is new, apart from the rates."""

    round: int | None = Field(None, ge=0, description="refused unless it is the number of the session's next round")
    rates_bps: list[list[Rate]] = Field(description="client × channel")
    dataset_sizes: list[Samples] | None = None
    gradient_norms_sq: list[NormSq] | None = None
    gradient_variances: list[Variance] | None = None
    weight_ranges: list[Range] | None = None
    error_scales: list[Error] | None = Field(None, description="c: with q bits the error is at most c/(2^q - 1)²")
    upload_bits: list[Sizes] | None = Field(None, description="client × bits: sizes of uploads, rising")
    upload_errors: list[Errors] | None = Field(None, description="client × bits: expected squared errors, falling")


class UploadReport(_Body):
    """What one client sent: the size of its upload, its statistics, and forecasts for its next upload."""

    client: int = Field(ge=0)
    size_bits: Size | None = Field(None, description="size on the air; without it, as forecast")
    gradient_norm_sq: NormSq
    gradient_variance: Variance = 0.0
    weight_range: Range
    loss: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    error_scale: Error | None = None
    upload_bits: Sizes | None = None
    upload_errors: Errors | None = None


class OutcomeBody(_Body):
    """The uploads of a round. A client that was asked to train and is not among them has failed."""

    round: int | None = Field(None, ge=0, description="refused unless it is the number of the round that was decided")
    uploads: list[UploadReport]


def read_body(kind: type[Body], content: bytes) -> Body:
    """The body of a request; refuses a mistake with one sentence."""
    tree = parse_json(content, "the body")
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        message = first["msg"][0].lower() + first["msg"][1:]
        raise ConfigError(f"{where or 'the body'}: {message}.") from None


def requested_scenario(body: ScenarioBody, setup: Setup, names: list[str] | None = None) -> Scenario:
    """The scenario of a request, within the limits."""
    require_no_files(body.settings)
    scenario = checked_scenario(load_scenario(body.preset, body.settings), setup)
    require_known_code(names or [], setup)
    return scenario


def checked_scenario(scenario: Scenario, setup: Setup) -> Scenario:
    """Refuse a scenario that names code or files, or that is too large."""
    require_known_code(list(_texts(scenario.model_dump())), setup)
    trace = scenario.statistics.trace
    if scenario.statistics.model == "trace" and trace not in BUNDLED_TRACES:
        raise ConfigError(
            f"statistics.trace = {trace!r} is not a bundled trace ({', '.join(BUNDLED_TRACES)}): files are not read "
            "for a request; use `qccf plan`."
        )
    if not scenario.learning.num_parameters and not setup.allow_plugins:
        raise ConfigError("learning.num_parameters = 0 is not accepted in a request: state the size of the model.")
    learning = scenario.learning
    known = learning.flops_per_sample or (learning.model in STORED and not learning.model_options)
    counts = not scenario.devices.is_papers or scenario.device.cycles_per_sample == "auto"
    if counts and not known and not setup.allow_plugins:
        raise ConfigError("learning.flops_per_sample = 0 is not accepted for this model in a request: state it.")
    require_links(scenario.federation.num_clients, scenario.radio.num_channels, setup)
    return scenario


@cache
def file_settings() -> dict[str, tuple[str, ...]]:
    """The settings that may name a file, and the names among their values that are no files."""
    return {info.path: info.names for info in settings_reference() if info.names is not None}


def require_no_files(settings: dict[str, Any]) -> None:
    """Refuse settings that name a file, before anything is loaded: loading a trace already reads it."""
    tree = with_settings({}, settings)
    for setting, names in file_settings().items():
        given = tree
        for part in setting.split("."):
            given = given.get(part, "") if isinstance(given, dict) else ""
        if any(text and text not in names for text in _texts(given)):
            known = f"give one of {', '.join(names)}" if names else "leave it out"
            raise ConfigError(
                f"{setting} = {str(given)[:80]!r} may name a file, and files are not read for a request: {known}, or "
                "use `qccf plan`."
            )
    path = next((text for text in _texts(settings) if PATH.search(text)), None)
    if path is not None:
        raise ConfigError(f"{path[:80]!r} looks like a path, and files are not read for a request: leave it out.")


def require_known_code(texts: list[str], setup: Setup) -> None:
    own = next((text for text in texts if is_own(text)), None)
    if own is not None and not setup.allow_plugins:
        raise ConfigError(
            f"{own[:80]!r} names code of your own, which is not loaded for a request: start the service with "
            "--allow-plugins, or use a name that `qccf settings` lists."
        )


def require_links(clients: int, channels: int, setup: Setup) -> None:
    limit = setup.limits.links
    if clients * channels > limit:
        raise RefusedError(
            413, f"{counted(clients, 'client')} × {counted(channels, 'channel')} is above the limit of {limit:,} links."
        )


def _texts(tree: Any) -> Iterator[str]:
    """All texts in a tree, also names of keys."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield str(key)
            yield from _texts(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _texts(value)
