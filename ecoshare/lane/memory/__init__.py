"""Memory that a job keeps between its iterations and needs inside one, observed in the job's own process."""
