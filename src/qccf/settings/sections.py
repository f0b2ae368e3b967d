"""What sections of the settings are made of: keys with meaning and limits, and sections from options dataclasses."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from qccf.core.registry import Registry
from qccf.settings.plain import require_plain


def key(default: Any, description: str, **limits: Any) -> Any:
    """One key of a section."""
    return Field(default, description=description, **limits)


def file_key(default: Any, description: str, *, names: Iterable[str] = (), **limits: Any) -> Any:
    """A key that may name a file. Requests to the service may give it only one of `names`, which are no files."""
    return Field(default, description=description, json_schema_extra={"names": [*names]}, **limits)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _is_plain(self) -> "Section":
        for name, value in self:
            if not isinstance(value, Section):
                require_plain(value, name)
        return self


def section_model(name: str, options: type) -> type[Section]:
    """A section from an entry's options dataclass."""
    hints = get_type_hints(options)
    keys: dict[str, Any] = {}
    for one in fields(options):
        hint, default = hints[one.name], one.default
        if is_dataclass(hint):
            hint = section_model(f"{one.name.title()}Section", hint)  # type: ignore[arg-type]
            default = hint()
        limits = one.metadata.get("limits", {})
        if limits and get_origin(hint) is not None:  # limits hold for the number of `Literal["auto"] | float`
            kinds = get_args(hint)
            hint = kinds[0] | Annotated[kinds[1], Field(**limits)]
            limits = {}
        description = one.metadata.get("description", "")
        unit = {"unit": one.metadata.get("unit", "")}
        keys[one.name] = (hint, Field(default, description=description, json_schema_extra=unit, **limits))

    def check(self: Section) -> Section:
        options(**option_values(options, self))
        return self

    model = create_model(
        name,
        __base__=Section,
        __doc__=options.__doc__,
        __module__=__name__,
        __validators__={"check": model_validator(mode="after")(check)},  # type: ignore[dict-item]
        **keys,
    )
    globals()[name] = model  # pickle looks for it here
    return model


def option_values(options: type, section: Any) -> dict[str, Any]:
    """The values of an options dataclass that a section holds."""
    hints = get_type_hints(options)
    values = {one.name: getattr(section, one.name) for one in fields(options)}
    return {
        name: hints[name](**option_values(hints[name], value)) if is_dataclass(hints[name]) else value
        for name, value in values.items()
    }


def option_sections(registry: Registry[Any]) -> Iterator[tuple[str, Any]]:
    """One section per options dataclass of a registry's entries."""
    for entry in registry.values():
        section, options = getattr(entry, "section", ""), getattr(entry, "Options", None)
        if section and options is not None:
            model = section_model(f"{section.title().replace('_', '')}Section", options)
            yield section, (model, model())
