"""The same rounds in a Flower federation. Import the public names from qccf.flower."""
