"""Traces of jobs: read as other systems wrote them, of a run that has been, or generated."""
