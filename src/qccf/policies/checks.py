"""Checks of what a policy returns: a faulty plug-in gets a sentence, not a wrong result."""

from typing import Any

import numpy as np

from qccf.core.contracts import MAX_NUM_BITS, Constants, Decision, Observation, Policy, PolicyState
from qccf.core.errors import PolicyError


def checked_decision(decision: Any, observation: Observation, constants: Constants, policy: Policy) -> Decision:
    """The decision itself if it satisfies C1 to C3, C5 and C8. C4, the deadline, is settled later."""

    def refuse(reason: str) -> PolicyError:
        return PolicyError(f"policy {type(policy).__name__!r} made no valid decision: {reason}.")

    if not isinstance(decision, Decision):
        raise refuse(f"it returned {type(decision).__name__}, not a Decision")
    count = observation.num_clients
    for name, kind in (("channels", "i"), ("num_bits", "i"), ("frequencies_hz", "f")):
        array = getattr(decision, name)
        if not isinstance(array, np.ndarray) or array.shape != (count,) or array.dtype.kind != kind:
            wanted = "integers" if kind == "i" else "floats"
            raise refuse(f"{name} must be an array of {count} {wanted}, one for each client")
    on = decision.participates
    used, bits, frequencies = decision.channels[on], decision.num_bits[on], decision.frequencies_hz[on]
    if (decision.channels < -1).any() or (used >= observation.num_channels).any():
        raise refuse(f"channels must be -1 (sits out) or 0 to {observation.num_channels - 1}")
    if len(np.unique(used)) < len(used):
        raise refuse("a channel has more than one client")
    if ((bits < 1) | (bits > MAX_NUM_BITS)).any():
        raise refuse(f"num_bits must be 1 to {MAX_NUM_BITS} for participating clients")
    own = constants.of(np.flatnonzero(on))
    low, high = own.frequency_min_hz, own.frequency_max_hz
    wrong = ~((frequencies >= low * (1.0 - 1e-12)) & (frequencies <= high * (1.0 + 1e-12)))
    if wrong.any():
        low, high = (np.broadcast_to(one, wrong.shape)[wrong][0] for one in (low, high))
        raise refuse(f"frequencies_hz must be between {low:g} and {high:g} for participating clients")
    if decision.powers_w is not None:
        powers_w, most_w = decision.powers_w, own.transmit_power_w
        if not isinstance(powers_w, np.ndarray) or powers_w.shape != (count,) or powers_w.dtype.kind != "f":
            raise refuse(f"powers_w must be None or an array of {count} floats, one for each client")
        wrong = ~((powers_w[on] > 0.0) & (powers_w[on] <= most_w * (1.0 + 1e-12)))
        if wrong.any():
            most_w = np.broadcast_to(most_w, wrong.shape)[wrong][0]
            raise refuse(f"powers_w must be above 0 and at most {most_w:g} for participating clients")
    return decision


def checked_state(state: Any, policy: Policy) -> PolicyState:
    """The state itself if it is a dict."""
    if not isinstance(state, dict):
        raise PolicyError(
            f"policy {type(policy).__name__!r} returned {type(state).__name__} for its state: a state is a dict."
        )
    return state
