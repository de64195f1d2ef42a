"""Plans for tests: as `ecoshare run` makes them, without profiles and control of clocks unless a test gives them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any, cast

from ecoshare.base.clock import REAL
from ecoshare.base.device import DeviceInfo
from ecoshare.jobs.load import LoadedJobs
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.run_options import RunOptions
from ecoshare.runtime.nodes.held_machines import FoundDevices
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_limits import PlannedMachines
from ecoshare.runtime.run import Run


def planned(
    loaded: LoadedJobs,
    machines: PlannedMachines | Sequence[DeviceInfo],
    store: ProfileStore | None = None,
    queue: str = "",
    beside: Collection[str] = (),
    learn: bool = True,
    **options: Any,
) -> Plan:
    """Plan of jobs.

    Args:
        loaded: The jobs.
        machines: The machines, or devices of this one.
        store: Profiles of job classes; None for none.
        queue: Name of the queue of the run; empty for none.
        beside: Classes of other jobs of the run.
        learn: Whether jobs without a length take the one that earlier runs had.
        options: Fields of `RunOptions`.
    """
    held = FoundDevices(tuple(machines)) if isinstance(machines, Sequence) else machines
    folder = None if store is None else store.folder
    asked = RunOptions(**{"control": "off", "profiles": folder, "use_profiles": store is not None, **options})
    return Plan.of(loaded, held, asked, learn=learn, queue=queue, beside=beside)


def begun(plan: Plan, core: Any = None, **parts: Any) -> Run:
    """Run of a plan, with no machine, folder or log.

    Args:
        plan: The plan.
        core: Stand-in for the scheduler; None for a new one.
        parts: Other parts of the run that have stand-ins.
    """
    nothing: Any = None
    host, profiler = SimpleNamespace(clock=REAL), SimpleNamespace(made={}, notes=[], stops_the_run=False)
    environment = {"token": "token", "opened_unix_s": REAL.unix_s(), "power_models": {}}
    run = Run(plan, nothing, nothing, environment, cast(Any, host), cast(Any, profiler))
    for name, part in {**parts, **({} if core is None else {"core": core})}.items():
        setattr(run, name, part)
    return run
