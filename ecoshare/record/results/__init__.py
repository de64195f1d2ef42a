"""Result of a run as typed values: the summary and its parts."""
