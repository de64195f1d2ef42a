"""Helpers that every layer may use: they need the standard library only."""
