"""The devices that nodes state: what of it is used, and what a change of device means for a battery."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.errors import ConfigError
from qccf.runtimes.flower.messages import StatedDevice
from qccf.settings.devices import model_flops
from qccf.settings.loading import Scenario


def with_stated_devices(
    scenario: Scenario, stated: Mapping[int, StatedDevice]
) -> tuple[Scenario, list[int], list[str]]:
    """The scenario with these devices, the clients whose device is another than before, and a sentence for each
    statement that is not used. A client without a usable statement has the device of the settings."""
    nodes, changed, warnings = dict(scenario.devices.nodes), list[int](), list[str]()

    @cache
    def why_no_flops() -> str:
        try:
            model_flops(scenario)
        except ConfigError as error:
            return str(error)
        return ""

    for client, (tree, problem) in sorted(stated.items()):
        if tree is not None:
            problem = why_no_flops() if tree["cycles_per_sample"] == "auto" else ""
            problem = problem or _why_no_steps(scenario, tree)
        if problem:
            warnings.append(f"the device that client {client} states is not used, but that of the settings: {problem}")
        used = None if problem else tree
        if used != nodes.get(str(client)):
            changed.append(client)
            nodes.pop(str(client), None)
            nodes |= {} if used is None else {str(client): used}
    return scenario.replaced(devices={"nodes": nodes}), changed, warnings


def _why_no_steps(scenario: Scenario, tree: Mapping[str, Any]) -> str:
    """The closed forms of the paper's controller need a continuous frequency."""
    control = scenario.control
    if "steps" in tree and control.form == "paper" and control.inner != "exact":
        return f'it has steps of frequency, and control.inner = "{control.inner}" needs a range: use "exact".'
    return ""


def batteries_after(
    full_j: FloatArray | None, left_j: FloatArray | None, changed: Sequence[int], num_clients: int
) -> tuple[FloatArray | None, FloatArray | None]:
    """The first charge of each battery and what is left, with those of the clients whose device is another now.

    A new device begins with its first charge. None where nobody has had a battery yet.
    """
    if full_j is None and left_j is None:
        return None, None
    mains = np.full(num_clients, np.inf)
    full_j = mains if full_j is None else full_j
    left_j = (mains if left_j is None else left_j).copy()
    left_j[list(changed)] = full_j[list(changed)]
    return full_j, left_j
