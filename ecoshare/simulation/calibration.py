"""Measured speeds of single devices. GPUs of one model differ, and the difference depends on the job.

::

    device,class,speed
    n0g0,resnet,0.93      rate of jobs of this class on this device / rate on a typical device
    n0g0,,0.98            the same for all other classes; 1 if this line is missing
"""

from __future__ import annotations

from pathlib import Path

from ecoshare.advisers.delimited import lines_of, quoted
from ecoshare.errors import UsageError
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.traces.sheet import Row, Sheet
from ecoshare.values.device import SPEED_COLUMNS

_FORM = "a calibration has the columns device, class and speed, and a line for each of a device's classes"


def read(path: Path, cluster: Cluster) -> dict[str, dict[str, float]]:
    """Relative speed for each device of the cluster and each job class: speed there / speed on a typical device.

    Raises:
        UsageError: The file cannot be read, or is empty.
        InvalidJobFile: The file has faults. The error lists all of them with line and column, but only the first
            unknown device.
    """
    lines = lines_of(path, _FORM)
    if not any(map(str.strip, lines)):
        raise UsageError(f"{path} is empty", _FORM)
    sheet = Sheet(str(path), lines, ",")
    device, job_class, speed = sheet.columns(SPEED_COLUMNS, "a calibration")
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
    missing.pop("", None)  # reported already
    if missing:
        name, row = next(iter(missing.items()))
        more = f", nor {len(missing) - 1} more that are named here" if len(missing) > 1 else ""
        sheet.wrong(row, device, f"there is no {quoted(name)} among the GPUs n0g0 to {list(found)[-1]}{more}")
    sheet.finish()
    return {name: speeds for name, speeds in found.items() if speeds}
