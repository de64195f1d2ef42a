"""Fused lanes: jobs of one script and one lane run as threads of one process, one at a time."""
