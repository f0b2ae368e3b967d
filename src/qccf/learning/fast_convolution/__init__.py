"""A Winograd convolution for small CNNs on CPUs."""
