"""The uplink: from positions and fading to the rate of every client on every channel. Paper: Section IV-A."""
