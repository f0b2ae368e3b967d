"""What clients state when they register, and why a round has nobody to train."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from qccf.core.contracts import BoolArray, Constants, FloatArray
from qccf.devices.cost import able_clients
from qccf.rounds.claims import ClaimRules, registered_sizes
from qccf.rounds.round import OpenRound


class Registration:
    """Each client's dataset size, stated in its first report and limited by what the others state.

    A client without a report has the median of the others.
    """

    def __init__(self, num_clients: int, rules: ClaimRules) -> None:
        self._num_clients = num_clients
        self._rules = rules
        self._stated: dict[int, int] = {}
        self._differing: set[int] = set()
        self.sizes: FloatArray = np.zeros(num_clients)

    @property
    def registered(self) -> BoolArray:
        """Which clients have stated their size."""
        return np.isin(np.arange(self._num_clients), list(self._stated))

    def begin(self, stated: dict[int, int]) -> list[str]:
        """Take the sizes of all clients that were measured; returns a sentence for each that is not accepted."""
        self._stated = dict(stated)
        self.sizes, warnings = registered_sizes(self._stated, self._num_clients, self._rules)
        return warnings

    def report(self, client: int, count: int) -> list[str]:
        """Take note of a size in a later report; returns a sentence if it is not accepted.

        A client's first report registers it, and all limits follow from what is stated then: the first two could state
        what they liked. A size that changes afterwards is ignored, and said so once.
        """
        if client not in self._stated:
            self._stated[client] = count
            before = self.sizes
            self.sizes, warnings = registered_sizes(self._stated, self._num_clients, self._rules)
            about = {client, *np.flatnonzero(self.sizes != before).tolist()}
            return [sentence for sentence in warnings if int(sentence.split()[1]) in about]
        if count == self._stated[client] or client in self._differing:
            return []
        self._differing.add(client)
        return [
            f"client {client} reported {count} samples and registered with {self._stated[client]}: the size is fixed "
            f"at registration, and {self.sizes[client]:.0f} is used."
        ]

    def state(self) -> dict[str, Any]:
        """The values that a resumed run needs, as JSON types."""
        return {str(client): count for client, count in self._stated.items()}

    def restore(self, state: dict[str, Any] | None, sizes: FloatArray) -> None:
        """Continue from such a state with the sizes of the checkpoint; without one every client is registered."""
        known = {int(client): int(count) for client, count in (state or {}).items()}
        self._stated = known if state is not None else {client: int(size) for client, size in enumerate(sizes)}
        self.sizes = sizes.copy()


def why_nobody_trains(opened: OpenRound, online: Sequence[int], policy: str, constants: Constants) -> str:
    """The reason of a round without participants, which must not pass silently."""
    able = np.flatnonzero(able_clients(opened.observation, constants))
    if not len(able):
        return f"none of the clients that are online ({listed(online)}) can upload within the deadline"
    if not opened.decision.participates.any():
        return f"policy {policy!r} schedules nobody, although clients {listed(able)} could upload"
    late = listed(np.flatnonzero(opened.decision.participates))
    return f"the uploads of the scheduled clients {late} would miss the deadline"


def listed(clients: Iterable[int]) -> str:
    """Some client numbers in a sentence."""
    numbers = sorted(map(int, clients))
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown
