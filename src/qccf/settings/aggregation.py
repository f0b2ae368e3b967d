"""Sections of the last stage of a round: privacy on the client, hostile clients, aggregation, the server optimizer."""

from typing import Any

from pydantic import create_model, model_validator

from qccf.learning.aggregation.registry import AGGREGATION_RULES
from qccf.learning.attacks.registry import ATTACKS
from qccf.learning.server.registry import SERVER_OPTIMIZERS
from qccf.settings.sections import Section, key, option_sections

WHOLE_MODEL = "model"
"""The value of server.downlink with which participants receive the global model as 32-bit floats."""


class _ServerBase(Section):
    optimizer: str = key("average", f"server optimizer: {', '.join(SERVER_OPTIMIZERS)}, or your own as module:Class")
    options: dict[str, Any] = key({}, "options passed to a server optimizer of your own")
    averaging: float = key(
        0.0,
        "memory of the average of global models that is evaluated and delivered: the model of k rounds ago weighs this "
        "to the power k; 0 takes the last model",
        ge=0,
        lt=1,
    )
    downlink: str = key(
        WHOLE_MODEL,
        "what participants receive: the whole model as 32-bit floats, or its changes in a codec of updates, such as "
        "update+entropy",
    )
    downlink_error: float = key(
        0.1, "most expected squared error of a coded change, as a share of its squared norm", gt=0, le=1
    )

    @model_validator(mode="after")
    def _error_of_a_coded_change(self) -> "_ServerBase":
        if self.downlink == WHOLE_MODEL and "downlink_error" in self.model_fields_set and self.downlink_error != 0.1:
            raise ValueError(
                f"downlink_error = {self.downlink_error:g} has no effect with downlink = {self.downlink!r}: name a "
                "codec of updates, such as update+entropy, or leave it out"
            )
        return self


ServerSection: Any = create_model(
    "ServerSection",
    __base__=_ServerBase,
    __module__=__name__,
    __doc__="How the server makes the next model from what arrived in a round.",
    **dict(option_sections(SERVER_OPTIMIZERS)),
)


class _AggregationBase(Section):
    rule: str = key("mean", f"aggregation rule: {', '.join(AGGREGATION_RULES)}, or your own as module:Class")
    options: dict[str, Any] = key({}, "options passed to an aggregation rule of your own")


AggregationSection: Any = create_model(
    "AggregationSection",
    __base__=_AggregationBase,
    __module__=__name__,
    __doc__="How the uploads of a round become one model, which the server optimizer gets (see `docs/security.md`).",
    **dict(option_sections(AGGREGATION_RULES)),
)


class _AttackBase(Section):
    kind: str = key("none", f"what attackers do: {', '.join(ATTACKS)}, or your own as module:Class")
    clients: int | list[int] = key(1, "number of attackers, or a list of them", union_mode="left_to_right")
    options: dict[str, Any] = key({}, "options passed to an attack of your own")


AttackSection: Any = create_model(
    "AttackSection",
    __base__=_AttackBase,
    __module__=__name__,
    __doc__="Hostile clients of a simulated federation, to study defences; none by default.",
    **dict(option_sections(ATTACKS)),
)


class PrivacySection(Section):
    """Client-level differential privacy: clients clip their change and add noise (see `docs/privacy.md`)."""

    clip_norm: float = key(0.0, "most length of a client's change, C; a longer one is clipped; 0 is off", ge=0, le=1e6)
    noise_multiplier: float = key(
        0.0, "standard deviation of the noise that each client adds to each value, as a multiple of C", ge=0, le=1e6
    )
    delta: float = key(1e-5, "δ at which ε is stated", gt=0, lt=1)

    @model_validator(mode="after")
    def _noise_needs_clipping(self) -> "PrivacySection":
        if self.noise_multiplier > 0.0 and self.clip_norm == 0.0:
            raise ValueError(
                f"noise_multiplier = {self.noise_multiplier:g} protects nobody with clip_norm = 0: set clip_norm"
            )
        return self
