"""Random whole networks with open axes, for `scripts.fuzz.run_networks`."""
