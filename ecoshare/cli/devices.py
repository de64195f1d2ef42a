"""`ecoshare devices`."""

from __future__ import annotations

import json

from rich.console import Console

from ecoshare.cli.options import JsonOption


def devices(as_json: JsonOption = False) -> None:
    """Show each device's knobs: ranges, present values, and whether this user may set them; and links. Sets nothing."""
    from ecoshare.devices.knob_survey import survey
    from ecoshare.devices.state_folder import StateFolder
    from ecoshare.reporting.device_table import print_devices

    found = survey(StateFolder.of_this_user())
    if as_json:
        print(json.dumps([device.as_dict() for device in found], indent=2))
    else:
        print_devices(found, Console(highlight=False))
