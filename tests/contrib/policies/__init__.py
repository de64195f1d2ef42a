"""Policies of papers."""
