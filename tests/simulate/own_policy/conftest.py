"""Settings of pytest: `tests/simulate/test_contract.py` runs the tests of this package, with the package installed."""

collect_ignore = ["test_patience.py"]
