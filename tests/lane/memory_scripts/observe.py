"""Program that runs scripts one after the other, each in two forks of this warm process: alone, and observed as a job.

Usage: observe.py FOLDER SCRIPT... It writes NAME.alone.{out,err}, NAME.observed.{out,err} and NAME.json into FOLDER.
"""

import gc
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo  # an optimizer's first step would, in each of the processes

from ecoshare.lane.hooks import Hooks
from ecoshare.lane.memory.observer import MemoryObserver

_WARM = 2
"""Number of boundaries before the observation begins: an optimizer makes its state in its first step."""


class Yielder:
    """Job's side of the lane that only observes."""

    absence_cost_s = 0.0
    cut_hook = None
    is_waited_for = False

    def __init__(self) -> None:
        self.observer = MemoryObserver("cpu")
        self.boundaries = 0

    def boundary(self, _kind: object) -> None:
        self.boundaries += 1
        if self.boundaries > _WARM:
            self.observer.boundary()

    def count(self, _kind: object) -> None: ...

    def leave(self) -> None: ...

    def take(self) -> None: ...


def run(script: Path, folder: Path, observed: bool) -> None:
    """Run `script` in this process, with its output in files."""
    stem = f"{script.stem}.{'observed' if observed else 'alone'}"
    for number, suffix in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{stem}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    torch.set_num_threads(1)  # or a sum of gradients may differ from run to run even without an observer
    yielder = Yielder()
    if observed:
        hooks = Hooks(yielder, accelerator=False)
        hooks.install()
    runpy.run_path(str(script), run_name="__main__")
    if observed:
        hooks.finish()
        (folder / f"{script.stem}.json").write_text(json.dumps(yielder.observer.result()))


def main() -> None:
    folder, scripts = Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]]
    gc.collect()
    gc.freeze()  # like the warm server
    for script in scripts:
        children = []
        for observed in (False, True):
            child = os.fork()
            if child == 0:
                try:
                    run(script, folder, observed)
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
