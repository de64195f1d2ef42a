"""Base classes and a forecast that several policies share. Each module of the folder above defines one policy."""
