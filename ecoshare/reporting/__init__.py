"""Shows what a run did."""
