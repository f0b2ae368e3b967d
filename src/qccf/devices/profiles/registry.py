"""All profiles by name. To add one, write a TOML file here and add a line below.

A user's own profile needs no line: its name is the path of its TOML file.
"""

from functools import lru_cache
from importlib import resources
from pathlib import Path

from qccf.core.errors import ConfigError
from qccf.core.files import require_regular
from qccf.core.suggest import closest
from qccf.devices.profile import Profile, profile_from_text, read_profile

PROFILES = {
    "paper": "Table I of the paper: the constants in [device] and [radio] of the settings",
    "pixel-2": "a phone with Snapdragon 835 (2017), four large cores",
    "galaxy-s6": "a phone with Exynos 7420 (2015), four large cores",
    "raspberry-pi-4": "a board with four Cortex-A72",
    "raspberry-pi-5": "a board with four Cortex-A76",
    "jetson-nano": "a board that trains on a Maxwell GPU",
    "jetson-orin-nano": "a board that trains on an Ampere GPU",
    "laptop": "a laptop with four Tiger Lake cores",
}
"""Each name with half a line about it; the file has the same name."""


def find_profile(name: str) -> Profile:
    """The profile of that name, or a user's own from a TOML file."""
    if name in PROFILES:
        return _bundled(name)
    if name.endswith(".toml"):
        try:
            require_regular(Path(name))
        except OSError as error:
            raise ConfigError(f"profile {name!r} cannot be read: {error.strerror or 'it is no file'}.") from None
        return read_profile(name)
    found = closest(name, PROFILES)
    meant = f" (did you mean {found!r}?)" if found else ""
    path = f"; a profile of your own is the path of a TOML file, such as {name}.toml" if not Path(name).suffix else ""
    raise ConfigError(f"profile {name!r} is not one of {', '.join(PROFILES)}{meant}{path}.")


@lru_cache(maxsize=len(PROFILES))
def _bundled(name: str) -> Profile:
    file = resources.files("qccf.devices.profiles").joinpath(f"{name}.toml")
    return profile_from_text(file.read_text(encoding="utf-8"), name, name)
