"""Measured speeds of single devices: GPUs of one model differ, and not by the same for all jobs.

::

    device,class,speed
    n0g0,resnet,0.93      work of such jobs in a second there, over that on a typical device
    n0g0,,0.98            of all other classes; 1 where there is no such line
"""

from __future__ import annotations

from pathlib import Path

from ecoshare.advisers.delimited import lines_of, quoted
from ecoshare.errors import UsageError
from ecoshare.simulate.cluster import Cluster
from ecoshare.simulate.traces.sheet import Row, Sheet

COLUMNS = ("device", "class", "speed")

_FORM = "a calibration has the columns device, class and speed, and a line for each of a device's classes"


def read(path: Path, cluster: Cluster) -> dict[str, dict[str, float]]:
    """By device of the cluster, and by class of job: its speed over that of a typical device.

    Raises:
        UsageError: The file cannot be read, or is empty.
        InvalidJobFile: What is wrong in it, all of it with line and column; of devices that are not there the first.
    """
    lines = lines_of(path, _FORM)
    if not any(map(str.strip, lines)):
        raise UsageError(f"{path} is empty", _FORM)
    sheet = Sheet(str(path), lines, ",")
    device, job_class, speed = sheet.columns(COLUMNS, "a calibration")
    found: dict[str, dict[str, float]] = {each.name: {} for each in cluster.devices()}
    missing: dict[str, Row] = {}
    for row in sheet.rows():
        name, of, value = sheet.text(row, device), row[1][job_class].strip(), sheet.positive(row, speed)
        if name not in found:
            missing.setdefault(name, row)
        elif of in found[name]:
            sheet.wrong(row, job_class, f"{name} has a speed of class {quoted(of)} in an earlier line")
        else:
            found[name][of] = value
    missing.pop("", None)  # is told already
    if missing:
        name, row = next(iter(missing.items()))
        more = f", nor {len(missing) - 1} more that are named here" if len(missing) > 1 else ""
        sheet.wrong(row, device, f"there is no {quoted(name)} among the GPUs n0g0 to {list(found)[-1]}{more}")
    sheet.finish()
    return {name: speeds for name, speeds in found.items() if speeds}
