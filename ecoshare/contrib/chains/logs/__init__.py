"""Logs of batch clusters as jobs, in several forms."""
