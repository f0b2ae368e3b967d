"""The registry of policies: one line per policy."""

from collections.abc import Callable

from qccf.core.contracts import Policy
from qccf.core.registry import Registry
from qccf.policies.channel_allocate import ChannelAllocate
from qccf.policies.fixed_bits import FixedBits
from qccf.policies.no_quantization import NoQuantization
from qccf.policies.principle import Principle
from qccf.policies.qccf import Qccf
from qccf.policies.same_size import SameSize

POLICIES: Registry[Callable[..., Policy]] = Registry(
    "policy",
    {
        "qccf": Qccf,
        "no-quantization": NoQuantization,
        "channel-allocate": ChannelAllocate,
        "principle": Principle,
        "same-size": SameSize,
        "fixed-bits": FixedBits,
    },
    methods=("init", "decide", "update"),
    call="Class(constants, rounds=…, **options)",
)
"""A policy may have `Options`, a frozen dataclass, and `section`, the section of the settings that holds them.
`also` is another policy whose options it takes as well."""

PAPERS_POLICIES = ("qccf", "no-quantization", "channel-allocate", "principle", "same-size")
"""The five that the paper compares; commands use them where no policy is named."""
