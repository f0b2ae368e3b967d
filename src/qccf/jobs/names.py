"""The name of a run's folder."""

import re

from qccf.settings.loading import Scenario, run_digest


def run_name(scenario: Scenario) -> str:
    """Policy, codec, seed and a digest of the settings: readable, and different for different settings."""
    return f"{readable_name(scenario)}-{run_digest(scenario)[:12]}"


def readable_name(scenario: Scenario) -> str:
    """Policy, codec and seed."""
    return f"{file_name(scenario.policy.name)}-{file_name(scenario.codec.name)}-seed{scenario.federation.seed}"


def file_name(text: str) -> str:
    """A policy or codec as a part of a file name; your own are named module:Class."""
    return re.sub(r"[^\w+-]", "-", text)
