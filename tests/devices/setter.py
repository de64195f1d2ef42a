"""Sets a fake GPU again and again, with a guard, until its stdin is closed or it is killed.

Prints the guard's process number whenever there is a new guard.
"""

from __future__ import annotations

import asyncio
import faulthandler
import random
import sys
import tempfile
import threading
from pathlib import Path

from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.runtime.nodes.guard_client import Guard

LONGEST_S = 60.0


async def main(uuid: str, seed: int) -> None:
    """Claim the GPU, set it a few times and put it back, repeatedly until stdin is closed."""
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)  # no test waits for a process that is stuck
    draw = random.Random(seed)
    told = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        told.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    guard = Guard(f"setter-{seed}", Path(tempfile.mkdtemp(dir=sys.argv[3])), [("nvidia", uuid)])
    keeping = asyncio.create_task(guard.keep())
    showing = asyncio.create_task(show(guard))
    while not told.is_set():
        assert not showing.done(), showing
        control = await asyncio.to_thread(DeviceControl, uuid, "nvidia", "GPU", StateFolder.of_this_user(), True)
        specs = control.specs
        for _ in range(draw.randint(1, 4)):
            setting: dict[str, float | str] = {}
            for spec in specs:
                choices: list[float | str] = [*spec.values, *spec.special]
                setting[spec.name] = draw.choice(choices)
            applied = await asyncio.to_thread(control.apply, setting)
            assert not applied.refused, applied
        restored = await asyncio.to_thread(control.restore)
        assert all(each.outcome.value != "not put back" for each in restored), restored
    keeping.cancel()
    showing.cancel()
    guard.dismiss()


async def show(guard: Guard) -> None:
    """Print the process number of every new guard."""
    shown = None
    while True:
        if guard.pid != shown:
            shown = guard.pid
            print(shown, flush=True)
        await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
