"""Krum: the client that is nearest to the others (Blanchard et al., NeurIPS 2017)."""

from qccf.learning.aggregation.multi_krum import MultiKrum


class Krum(MultiKrum):
    """The change of the one client with the lowest score; the score is multi-Krum's."""

    section = "krum"

    def num_chosen(self, count: int, attackers: int) -> int:
        return 1
