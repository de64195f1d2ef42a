"""The garbage collector is paused, and resumes."""

from __future__ import annotations

import gc

import pytest

from ecoshare.base.documents import collector_paused


def test_the_collector_comes_back() -> None:
    """If it failed, a mistake in a job file would leave the whole command without a collector."""
    with pytest.raises(KeyError), collector_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_before_stays_off() -> None:
    """If it failed, loading a job file would undo what the caller had chosen."""
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
