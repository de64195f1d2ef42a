"""Run in a process of its own that takes part in slices: `slicing.py FOLDER USER SLICE_S DEVICE...`.

Prints `begin` and `end` with the time.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ecoshare.core import slices as rules
from ecoshare.devices.device_slices import DeviceSlices, TablePaths


def main() -> None:
    folder, user, devices = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[4:]
    rules.SLICE_S = float(sys.argv[3])
    os.setuid(user)

    def tell(what: str) -> None:
        print(f"{what} {time.monotonic():.4f}", flush=True)

    def end() -> None:
        tell("end")
        slices.ended()

    slices = DeviceSlices(devices, lambda: tell("begin"), end, "run", TablePaths(folder))
    slices.open()
    slices.want(True)
    time.sleep(600.0)


if __name__ == "__main__":
    main()
