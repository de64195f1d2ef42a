"""Real-time driver of the core, with real processes."""
