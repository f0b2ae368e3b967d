"""The paper's radio: it takes what it radiates, and a stated circuit power besides."""


class Radiated:
    """Paper: E_com = p·ℓ/v, Section IV-A."""

    slope = 1.0
    replaces_circuits = False
    constant_w = 0.0
    wake_energy_j = 0.0
    sleep_w = 0.0
