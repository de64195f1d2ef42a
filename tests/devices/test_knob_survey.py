"""Survey of the knobs of this machine's devices, and of the reasons against those that cannot be set."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.devices import knob_survey, registry
from ecoshare.devices.control.state_folder import StateFolder, key
from ecoshare.devices.registry import processors
from ecoshare.errors import UnfitEnvironment


def _fails(kind: str, device: str) -> None:
    raise UnfitEnvironment(f"{kind} {device} does not answer")


@pytest.mark.parametrize("opens", [True, False])
def test_a_damaged_journal_is_told_whether_the_device_can_be_opened_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    """Else the user would mend the device, and a run would then refuse the journal."""
    state = StateFolder(tmp_path, tmp_path)
    state.journal(key(processors())).write_text("{")
    if not opens:
        monkeypatch.setattr(registry, "open_knobs", _fails)
    found = knob_survey.survey(state)[-1]
    assert found.name == "cpu" and "damaged" in found.trouble
    assert opens or "does not answer" in found.access.how
