"""Every setting with meaning, unit, default and limits, read from the schema."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from qccf.settings.schema import Scenario
from qccf.settings.sections import Section

UNITS = {
    "_dbm_per_hz": "dBm/Hz", "_hz": "Hz", "_s": "s", "_w": "W", "_db": "dB", "_m": "m", "_bits": "bits",
}  # fmt: skip
"""The unit that the ending of a key states."""

SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True)
class SettingInfo:
    """One key. `limits` and `choices` are texts for people, empty where there are none.

    `names` are the values of a key that may name a file which are no files; None for any other key.
    """

    section: str
    key: str
    description: str
    unit: str
    default: str
    limits: str
    choices: str
    names: tuple[str, ...] | None = None

    @property
    def path(self) -> str:
        return f"{self.section}.{self.key}"


def settings_reference() -> list[SettingInfo]:
    """Every setting, in the order of the schema."""
    return [info for name, field in Scenario.model_fields.items() for info in _section(name, field.annotation)]


def section_descriptions() -> dict[str, str]:
    """Each section with the first line of its docstring."""
    sections = {info.section: _model(info.section) for info in settings_reference()}
    return {name: (model.__doc__ or "").strip().partition("\n")[0] for name, model in sections.items()}


def unit_of(key: str) -> str:
    """The unit of a key by its ending; empty if it has none."""
    return next((unit for suffix, unit in UNITS.items() if key.endswith(suffix)), "")


def _section(name: str, model: Any) -> Iterator[SettingInfo]:
    for key, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _section(f"{name}.{key}", field.annotation)
            continue
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        unit = str(extra.get("unit") or "") or unit_of(key)
        limits = ", ".join(_limits(field))
        choices = ", ".join(_choices(field.annotation))
        names = extra.get("names")
        bundled = tuple(map(str, names)) if isinstance(names, list) else None
        yield SettingInfo(name, key, field.description or "", unit, _shown(field.default), limits, choices, bundled)


def _limits(field: FieldInfo) -> Iterator[str]:
    found = [*field.metadata, *(m for kind in get_args(field.annotation) for m in getattr(kind, "__metadata__", ()))]
    for one in found:
        for part in [one, *getattr(one, "metadata", ())]:
            yield from (f"{sign} {getattr(part, name):,g}" for name, sign in SIGNS.items() if hasattr(part, name))


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [_shown(value) for value in get_args(annotation)]
    return ["true", "false"] if annotation is bool else []


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value) if value else "empty"


def _model(section: str) -> Any:
    model: Any = Scenario
    for name in section.split("."):
        model = model.model_fields[name].annotation
    return model
