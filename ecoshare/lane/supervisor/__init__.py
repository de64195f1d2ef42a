"""The process that forks jobs and supervises them: the warm server."""
