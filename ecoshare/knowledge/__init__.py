"""Measured facts about job classes, kept for later runs: profiles, co-location speeds, lengths, tuning results."""
