"""One machine of a run: its server, its guard, attempts, and looks at running jobs."""
