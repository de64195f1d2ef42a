"""The vendor of examples/acme.py is one file, and all parts of ecoshare find it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.devices import registry, vendors
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.knob_survey import survey
from tests.devices.claims import state_in

VENDOR = Path(__file__).parents[2] / "examples/acme.py"


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example among the vendors, and a driver of files with one accelerator that draws 100 W."""
    (tmp_path / "acme.py").write_text(VENDOR.read_text())
    device = tmp_path / "driver/acme0"
    device.mkdir(parents=True)
    for name, value in (("free_bytes", 8 << 30), ("used_bytes", 1 << 20), ("energy_uj", 0)):
        (device / name).write_text(str(value))
    monkeypatch.setenv("ACME_DRIVER", str(tmp_path / "driver"))
    monkeypatch.setattr(vendors, "__path__", [*vendors.__path__, str(tmp_path)])
    registry.all_vendors.cache_clear()
    over = threading.Event()
    counting = threading.Thread(target=_count, args=(device / "energy_uj", over))
    counting.start()
    yield device
    over.set()
    counting.join()
    registry.all_vendors.cache_clear()
    sys.modules.pop(f"{vendors.__name__}.acme", None)


def _count(counter: Path, over: threading.Event) -> None:
    joules = 0
    while not over.wait(0.01):
        joules += 1
        new = counter.with_name("new")
        new.write_text(str(joules * 1_000_000))
        new.rename(counter)


def test_the_vendor_of_the_example_is_found_measured_and_surveyed(acme: Path, tmp_path: Path) -> None:
    device = registry.find(None)
    assert (device.name, device.vendor, device.memory_bytes) == ("cuda:0", "acme", 8 << 30), (
        "it comes before processors"
    )
    opened = registry.open_device(device)
    meter = opened.open_meter()
    assert meter.info.name == "acme" and 0.005 < meter.info.period_s < 0.1
    assert meter.read().energy_j > 0.0
    state: StateFolder = state_in(tmp_path)
    found = survey(state)[0]
    assert found.model == "Acme One" and not found.access.allowed
    assert dict(found.missing) == {"power_limit": "the Acme driver has none"}


def test_no_file_outside_of_its_own_names_a_vendor() -> None:
    """A comparison with a vendor's name elsewhere is a place that the next vendor would have to find and change."""
    root = Path(__file__).parents[2] / "ecoshare"
    named = re.compile(r"""vendor\w* [!=]= ["'](nvidia|amd)["']|kind [!=]= ["'](cuda|cpu)["']""")
    outside = [path for path in root.rglob("*.py") if not path.is_relative_to(root / "devices/vendors")]
    found = {str(path.relative_to(root)) for path in outside if named.search(path.read_text())}
    assert found == set()
