"""Fused lanes: the jobs of one script and one lane as threads of one process, one of which runs at a time."""
