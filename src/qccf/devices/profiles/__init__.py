"""Profiles of devices that come with the package: one TOML file each, and one line in `registry.py`."""
