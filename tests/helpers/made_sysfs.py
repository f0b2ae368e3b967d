"""A made-up tree of the kernel's files, and a machine whose clock, meter and CPU follow the work."""

from pathlib import Path


def write(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".new")  # a reader never finds half of it, as in sysfs
    whole.write_text(f"{value}\n")
    whole.replace(path)


def add_package(root: Path, index: int, *, energy_uj: int, range_uj: int = 262_143_328_850) -> Path:
    """A package of RAPL, with its cores as a part."""
    zone = root / "class" / "powercap" / f"intel-rapl:{index}"
    write(zone / "name", f"package-{index}")
    write(zone / "energy_uj", energy_uj)
    write(zone / "max_energy_range_uj", range_uj)
    part = root / "class" / "powercap" / f"intel-rapl:{index}:0"
    write(part / "name", "core")
    write(part / "energy_uj", 1)
    write(part / "max_energy_range_uj", range_uj)
    return zone


def add_battery(root: Path, name: str = "BAT0", **files) -> Path:
    battery = root / "class" / "power_supply" / name
    for key, value in ({"type": "Battery", "status": "Discharging"} | files).items():
        write(battery / key, value)
    return battery


def add_cpufreq(root: Path, index: int = 0, *, steps_khz=(600_000, 1_000_000, 1_500_000), governor="ondemand") -> Path:
    group = root / "devices" / "system" / "cpu" / "cpufreq" / f"policy{index}"
    values = {
        "cpuinfo_min_freq": steps_khz[0],
        "cpuinfo_max_freq": steps_khz[-1],
        "scaling_min_freq": steps_khz[0],
        "scaling_max_freq": steps_khz[-1],
        "scaling_cur_freq": steps_khz[-1],
        "scaling_available_frequencies": " ".join(map(str, steps_khz)),
        "scaling_governor": governor,
        "scaling_setspeed": steps_khz[-1] if governor == "userspace" else "<unsupported>",
    }
    for name, value in values.items():
        write(group / name, value)
    return group


class UnpluggedMeter:
    """A meter of a user's own that counts a joule per reading and is unplugged after the third."""

    def __init__(self) -> None:
        self.reads = 0

    def energy_j(self) -> float:
        self.reads += 1
        if self.reads > 3:
            raise OSError("the meter was unplugged")
        return float(self.reads)


class AbsentMeter(UnpluggedMeter):
    """A meter of a user's own that cannot be opened."""

    def __init__(self) -> None:
        raise OSError("no such port")
