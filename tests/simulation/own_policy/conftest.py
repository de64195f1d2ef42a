"""The tests of this package are run as its owner would: by tests/simulation/test_contract.py, with it installed."""

collect_ignore = ["test_patience.py"]
