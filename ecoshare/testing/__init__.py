"""Drivers and contracts that policies are tested with. Their users have pytest; ecoshare itself does not need it."""
