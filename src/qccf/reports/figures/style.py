"""Colours and markers of policies and codecs, the same in every figure of a report."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import cycle
from typing import Any, NamedTuple, Protocol

from qccf.policies.registry import POLICIES
from qccf.quantization.registry import CODECS

# The palette of Okabe and Ito, which colour-blind readers can tell apart, and a grey.
PALETTE = ("#0072B2", "#D55E00", "#E69F00", "#CC79A7", "#56B4E9", "#009E73", "#7F7F7F", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "x", "+", "<", ">")


class Style(NamedTuple):
    colour: str
    marker: str


class _Named(Protocol):
    """A run, as far as its style depends on it."""

    @property
    def policy(self) -> str: ...
    @property
    def codec(self) -> str: ...


class Styles:
    """One style per policy and per codec.

    An entry of a registry may state `colour` and `marker` as class attributes. The others take the next free style in
    the order of the registry, and then the users' own entries among `runs` in the order of their names.
    """

    def __init__(self, runs: Iterable[_Named] = ()) -> None:
        named = list(runs)
        self.policies = _assigned(POLICIES, {run.policy for run in named})
        self.codecs = _assigned(CODECS, {run.codec for run in named})

    def of(self, label: str, run: _Named) -> Style:
        """The style of runs with that label: a policy, a codec, or both (colour of the policy, marker of the codec)."""
        policy, codec = self.policies[run.policy], self.codecs[run.codec]
        if label == run.policy:
            return policy
        return codec if label == run.codec else Style(policy.colour, codec.marker)


def _assigned(registry: Mapping[str, Any], used: Collection[str]) -> dict[str, Style]:
    # An inherited colour belongs to the parent: only attributes of the entry itself count.
    own = {name: getattr(registry[name], "__dict__", {}) for name in registry}
    stated = {name: Style(a["colour"], a.get("marker", MARKERS[0])) for name, a in own.items() if "colour" in a}
    free = _free_styles(stated.values())
    return {name: stated.get(name) or next(free) for name in [*registry, *sorted(set(used) - set(registry))]}


def _free_styles(taken: Collection[Style]) -> Iterator[Style]:
    """Unused colours first, then every colour with other markers."""
    colours = {style.colour for style in taken}
    styles = [
        Style(colour, MARKERS[(k + shift) % len(MARKERS)])
        for shift in range(len(MARKERS))
        for k, colour in enumerate(PALETTE)
    ]
    first, others = styles[: len(PALETTE)], styles[len(PALETTE) :]
    return cycle([s for s in first if s.colour not in colours] + [s for s in others if s not in taken])
