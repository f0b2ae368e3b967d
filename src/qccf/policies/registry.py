"""The registry of policies: one line per policy."""

from collections.abc import Callable, Sequence

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
`also` is another policy whose options it takes as well; `codes = False` means that it uploads raw floats."""

PAPERS_POLICIES = ("qccf", "no-quantization", "channel-allocate", "principle", "same-size")
"""The five that the paper compares; commands use them where no policy is named."""


def codes(policy: str) -> bool:
    """Whether the uploads of a policy depend on the codec."""
    return bool(getattr(POLICIES.get(policy), "codes", True))


def with_codecs(policies: Sequence[str], codecs: Sequence[str]) -> list[tuple[str, str]]:
    """Every policy with every codec; one that uploads raw floats only with the first."""
    return [(policy, codec) for policy in policies for codec in codecs if codes(policy) or codec == codecs[0]]
