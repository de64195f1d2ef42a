"""Settings of pytest: `tests/simulation/test_contract.py` runs the tests of this package, which is installed then."""

collect_ignore = ["test_patience.py"]
