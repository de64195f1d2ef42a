"""Access to the machine's devices: discovery, meters, knobs, journals, and how processes share them."""
