"""Answers the slow questions that the core asks: which setting to try next. Shared by both drivers."""
