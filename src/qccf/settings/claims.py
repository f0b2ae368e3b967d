"""The section of the settings about what clients report."""

from pydantic import model_validator

from qccf.settings.sections import Section, key


class ClaimsSection(Section):
    """What the server believes of what clients report about themselves (see `docs/security.md`)."""

    dataset_sizes: list[int] = key(
        [], "known number of samples of each client of a Flower federation, used instead of what clients state"
    )
    most_times_median: float = key(
        4.0, "the most samples that a client of a Flower federation may state, in medians of the others", ge=1, le=1e9
    )
    tolerance: float = key(
        1.0, "factor on the limits of all other reports; more where honest clients differ by more", ge=0.1, le=1e12
    )

    @model_validator(mode="after")
    def _somebody_has_data(self) -> "ClaimsSection":
        if any(not 1 <= size <= 10**12 for size in self.dataset_sizes):
            raise ValueError("dataset_sizes must be from 1 to 10^12 samples: give one for each client, or none")
        return self
