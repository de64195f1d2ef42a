"""Before a run begins: jobs and their classes, knowledge of earlier runs, checks, limits; what is left of a run."""
