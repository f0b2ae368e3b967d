"""Path loss and line-of-sight probability of 3GPP TR 38.901 (Tables 7.4.1-1 and 7.4.2-1), one link at a time.

Written independently of the package, in plain scalar Python, so that tests can compare both.
"""

import math

# Note 1 of Table 7.4.1-1 gives c = 3.0e8 m/s, and h_E = 1 m for UMi. For UMa h_E is 1 m for clients below 13 m; for
# taller clients the standard draws it at random per link, which is omitted here.
PROPAGATION_SPEED_M_S = 3.0e8
ENVIRONMENT_HEIGHT_M = 1.0

# Table 7.4.1-1, outdoor links, keyed by (model, line of sight).
SHADOWING_STD_DB: dict[tuple[str, bool], float] = {
    ("umi", True): 4.0,
    ("umi", False): 7.82,
    ("uma", True): 4.0,
    ("uma", False): 6.0,
    ("inh", True): 3.0,
    ("inh", False): 8.03,
    ("inh-open", True): 3.0,
    ("inh-open", False): 8.03,
}

# (model, line of sight, 2D distance m, carrier Hz, base height m, client height m, expected dB)
BY_HAND: list[tuple[str, bool, float, float, float, float, float]] = [
    # Before the break point: d_BP = 4 * (10 - 1) * (1.5 - 1) * 3.5e9 / 3e8 = 210 m, and 100 m is below it.
    #   d_3D = sqrt(100^2 + (10 - 1.5)^2) = sqrt(10072.25) = 100.360600, log10 = 2.00156325
    #   log10(3.5) = 0.54406804
    #   PL1 = 32.4 + 21 * 2.00156325 + 20 * 0.54406804 = 32.4 + 42.032828 + 10.881361 = 85.314189
    ("umi", True, 100.0, 3.5e9, 10.0, 1.5, 85.3142),
    # After the break point: the same d_BP = 210 m, and 400 m is beyond it.
    #   d_3D = sqrt(400^2 + 8.5^2) = sqrt(160072.25) = 400.090302, log10 = 2.60215802
    #   d_BP^2 + (10 - 1.5)^2 = 44100 + 72.25 = 44172.25, log10 = 4.64514952
    #   PL2 = 32.4 + 40 * 2.60215802 + 20 * 0.54406804 - 9.5 * 4.64514952
    #       = 32.4 + 104.086321 + 10.881361 - 44.128920 = 103.238762
    ("umi", True, 400.0, 3.5e9, 10.0, 1.5, 103.2388),
    ("umi", False, 200.0, 28.0e9, 10.0, 1.5, 134.4647),
    ("umi", False, 1000.0, 2.0e9, 10.0, 4.5, 133.8122),  # the height term subtracts 0.9 dB
    ("uma", True, 250.0, 3.5e9, 25.0, 1.5, 91.6781),  # d_BP = 560 m
    ("uma", True, 1000.0, 2.0e9, 25.0, 1.5, 108.9117),  # d_BP = 320 m
    ("uma", False, 500.0, 3.5e9, 25.0, 1.5, 129.9158),
    ("uma", False, 20.0, 3.5e9, 25.0, 22.5, 67.5781),  # PL'_NLOS is 62.7972, so PL_LOS is the larger
    # Indoor office: d_3D = sqrt(20^2 + (3 - 1)^2) = 20.099751, log10 = 1.30319069, log10(3.5) = 0.54406804
    #   PL_LOS = 32.4 + 17.3 * 1.30319069 + 20 * 0.54406804 = 32.4 + 22.545199 + 10.881361 = 65.826560
    #   PL'_NLOS = 17.3 + 38.3 * 1.30319069 + 24.9 * 0.54406804 = 17.3 + 49.912203 + 13.547294 = 80.759497
    ("inh", True, 20.0, 3.5e9, 3.0, 1.0, 65.8266),
    ("inh", False, 20.0, 3.5e9, 3.0, 1.0, 80.7595),
    ("inh-open", False, 20.0, 3.5e9, 3.0, 1.0, 80.7595),
    ("inh", False, 1.0, 2.0e9, 2.0, 1.5, 39.2589),  # PL'_NLOS is 26.6516, so PL_LOS is the larger
]


def path_loss_db(
    model: str,
    line_of_sight: bool,
    distance_2d_m: float,
    carrier_hz: float,
    base_height_m: float,
    client_height_m: float,
) -> float:
    """Median path loss without shadowing; no input is clamped to the standard's range (10 m to 5 km)."""
    climb = base_height_m - client_height_m
    log_distance = math.log10(math.hypot(distance_2d_m, climb))
    log_ghz = math.log10(carrier_hz / 1e9)
    effective_heights = (base_height_m - ENVIRONMENT_HEIGHT_M) * (client_height_m - ENVIRONMENT_HEIGHT_M)
    break_point = 4.0 * effective_heights * carrier_hz / PROPAGATION_SPEED_M_S
    beyond = distance_2d_m > break_point

    if model in ("inh", "inh-open"):
        loss = 32.4 + 17.3 * log_distance + 20.0 * log_ghz
        return loss if line_of_sight else max(loss, 38.3 * log_distance + 17.30 + 24.9 * log_ghz)
    if model == "umi":
        loss = 32.4 + (40.0 if beyond else 21.0) * log_distance + 20.0 * log_ghz
        bend = 9.5
        obstructed = 22.4 + 35.3 * log_distance + 21.3 * log_ghz - 0.3 * (client_height_m - 1.5)
    elif model == "uma":
        loss = 28.0 + (40.0 if beyond else 22.0) * log_distance + 20.0 * log_ghz
        bend = 9.0
        obstructed = 13.54 + 39.08 * log_distance + 20.0 * log_ghz - 0.6 * (client_height_m - 1.5)
    else:
        raise ValueError(f"unknown model {model!r}")
    if beyond:
        loss -= bend * math.log10(break_point**2 + climb**2)
    return loss if line_of_sight else max(loss, obstructed)


def line_of_sight_probability(model: str, distance_2d_m: float, client_height_m: float) -> float:
    """Outdoor probability as printed. For UMa it slightly exceeds 1 just beyond 18 m for clients above 13 m."""
    if model == "inh":  # indoor mixed office
        if distance_2d_m <= 1.2:
            return 1.0
        if distance_2d_m < 6.5:
            return math.exp(-(distance_2d_m - 1.2) / 4.7)
        return math.exp(-(distance_2d_m - 6.5) / 32.6) * 0.32
    if model == "inh-open":  # indoor open office
        if distance_2d_m <= 5.0:
            return 1.0
        if distance_2d_m <= 49.0:
            return math.exp(-(distance_2d_m - 5.0) / 70.8)
        return math.exp(-(distance_2d_m - 49.0) / 211.7) * 0.54
    if model not in ("umi", "uma"):
        raise ValueError(f"unknown model {model!r}")
    if distance_2d_m <= 18.0:
        return 1.0
    near = 18.0 / distance_2d_m
    if model == "umi":
        return near + math.exp(-distance_2d_m / 36.0) * (1.0 - near)
    height_gain = ((client_height_m - 13.0) / 10.0) ** 1.5 if client_height_m > 13.0 else 0.0
    lift = height_gain * 1.25 * (distance_2d_m / 100.0) ** 3 * math.exp(-distance_2d_m / 150.0)
    return (near + math.exp(-distance_2d_m / 63.0) * (1.0 - near)) * (1.0 + lift)
