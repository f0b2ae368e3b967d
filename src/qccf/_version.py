"""The version, where everything can read it without importing the package's names."""

__version__ = "0.2.0"
