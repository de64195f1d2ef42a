"""One module a vendor; each defines `VENDOR`, and the registry finds it here."""
