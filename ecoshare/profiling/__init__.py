"""Says how many joules were spent, and how that is known."""
