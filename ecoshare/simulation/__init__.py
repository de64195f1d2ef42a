"""Simulator: it drives the core in virtual time, on any number of devices."""
