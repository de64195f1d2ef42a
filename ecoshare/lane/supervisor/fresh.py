"""Program that the supervisor starts for a job in an interpreter of its own."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from ecoshare.lane import messages, runner
from ecoshare.lane.after_import import after_import
from ecoshare.lane.supervisor import warm_start
from ecoshare.lane.supervisor.warm_start import local_modules


def main(args: list[str]) -> None:
    """Run the launch that is written in the file descriptor `args[0]`.

    The other arguments name environment variables that torch reads while it loads. They are removed after that.
    """
    descriptor, *added = args
    with os.fdopen(int(descriptor), "rb") as source:
        launch = messages.decode(source.read())
    assert isinstance(launch, messages.LaunchAttempt)
    folder = Path(launch.cwd) if launch.script is None else Path(launch.script).parent
    # A `json.py` beside the script must be found, although the runner has loaded the standard library's `json`.
    warm_start.forget(warm_start.loaded(local_modules(folder)) - {"ecoshare"})
    after_import("torch", partial(_take_out, added))
    runner.run(launch, forked=False)


def _take_out(names: list[str]) -> None:
    for name in names:
        os.environ.pop(name, None)
