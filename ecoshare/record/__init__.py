"""Record of a run: its folder, its log, its samples, and what is derived from them."""
