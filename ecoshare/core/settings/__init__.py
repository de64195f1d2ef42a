"""Settings of devices: which one a packing gets, when it is measured, and the power budget over all."""
