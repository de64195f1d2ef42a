"""Access to the machine's devices: vendors, meters, knobs, journals, and how processes share them."""
