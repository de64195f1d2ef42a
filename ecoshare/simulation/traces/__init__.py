"""Traces of jobs: read in the forms of other systems, recorded by a run, or generated."""
