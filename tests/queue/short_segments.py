"""`ecoshare`, with a log that begins anew after a few jobs. It may be killed while that happens.

Environment:
    SEGMENT_BYTES: Size of a segment from which another one begins.
    KILLED_AT: Number of the segment that begins when the process is killed, from 1; never if it is missing.
    KILLED_WHEN: Whether that is `before` the earlier segment has its name, `between`, or `after` the new one is there.
"""

import os
import signal
import sys
from pathlib import Path

from ecoshare.cli import main
from ecoshare.record.kept_file import KeptFile
from ecoshare.runtime import log_turnover

log_turnover.SEGMENT_BYTES = int(os.environ["SEGMENT_BYTES"])
begin_anew, link = KeptFile.begin_anew, os.link
begun = 0


def killed(when: str) -> None:
    """Kill this process, if it is to be killed now."""
    if begun == int(os.environ.get("KILLED_AT", 0)) and when == os.environ["KILLED_WHEN"]:
        os.kill(os.getpid(), signal.SIGKILL)


def linked(source: Path, target: Path) -> None:
    """`os.link` of `KeptFile.begin_anew`."""
    killed("before")
    link(source, target)
    killed("between")


def begun_anew(self: KeptFile, data: bytes, earlier: Path) -> None:
    """`KeptFile.begin_anew`, which may not return."""
    global begun
    begun += 1
    begin_anew(self, data, earlier)
    killed("after")


KeptFile.begin_anew = begun_anew  # type: ignore[method-assign]
os.link = linked  # type: ignore[assignment]
sys.exit(main())
