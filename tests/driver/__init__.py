"""Fake NVIDIA driver for tests, in C, and its controls for tests.

::

    test ──FakeDriver──► state file ◄──── libnvidia-ml.so.1 ◄── pynvml, zeus ◄── ecoshare
    job ───Pretend─────►            (loads, clocks, faults, energy)
"""

from tests.driver import presets
from tests.driver.build import COMPILER
from tests.driver.fake import FakeDriver, FakeGpu, SetterCall, Settings
from tests.driver.faults import Fault
from tests.driver.pretend import Pretend

__all__ = ["COMPILER", "FakeDriver", "FakeGpu", "Fault", "Pretend", "SetterCall", "Settings", "presets"]
