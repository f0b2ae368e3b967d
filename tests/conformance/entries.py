"""Which entries the conformance tests try: all of a registry, and a user's own from the environment.

QCCF_CONFORMANCE="policy=my_module:MyPolicy codec=my_module:MyCodec" pytest tests/conformance
"""

import os

from qccf.core.registry import Registry


def entries(registry: Registry, *examples: str) -> list[str]:
    """The names of a registry's entries, some examples, and what the environment names of this kind."""
    kind = registry.kind.replace(" ", "-")
    named = (entry.partition("=") for entry in os.environ.get("QCCF_CONFORMANCE", "").split())
    return [*registry, *examples, *(name for own, _, name in named if own == kind)]
