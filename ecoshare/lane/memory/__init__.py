"""What a job keeps of memory between its iterations and needs inside one, observed in its own process."""
