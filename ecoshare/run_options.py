"""Options of a run. To add one, add a field here, and use it where it means something.

::

    RunOptions ──► `ecoshare run`, `ecoshare up`     RunRequest, UpRequest     the table in docs/commands.md
        │
        └──► Plan.of(jobs, machines, options) ──► plan.json, from which a resumed run takes them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from ecoshare.base.class_profile import BY_LIMITS
from ecoshare.base.device import LEAST_NODE_TIMEOUT_S, NODE_TIMEOUT_S
from ecoshare.base.disk import AnyPath
from ecoshare.base.measurement import TUNING_LIMIT, Goal
from ecoshare.errors import UsageError, did_you_mean
from ecoshare.option_fields import kept, option, options_of, request_class

if TYPE_CHECKING:
    from ecoshare.knowledge.profile_store import ProfileStore

ENGINES = ("ray", "slurm")
"""Engines that give a run machines."""

Control = Literal["auto", "known", "off"]
"""Whether a run may set clocks and power.

`auto` searches the best setting of each packing and uses it, `known` only uses what was found before, `off` sets
nothing.
"""

CONTROLS: tuple[Control, ...] = ("off", "known", "auto")
"""Values of `control`, from the one that allows least."""

MOST_TRIALS = 12
"""Most settings that one search measures during a run."""


def _policy_options(words: list[str]) -> Mapping[str, float]:
    from ecoshare.policy_names import parse_options

    return parse_options(words)


@request_class
class MachineOptions:
    """Options for the machines of a run. [The table](../commands.md#options-of-run) has their meaning."""

    wait: bool | None = option(
        "Wait for the end of a run that uses a device of this one, or be refused. Without it, both take turns if they "
        "can, and otherwise this one waits.",
        default=None,
        flag="--wait/--no-wait",
        given_none=True,
    )
    exclusive: bool = option("Let no other run take turns with this one.", default=False)
    share_device: bool = option(
        "Run beside a run that uses a device of this one, with the memory that is free.",
        default=False,
    )
    on: str | None = option(
        "Run the jobs on the machines of a Ray cluster, or of the Slurm allocation.",
        default=None,
        form="ray|slurm",
    )
    address: str | None = option(
        "Ray cluster of --on ray. Default: one of this machine alone, for this run.",
        default=None,
        form="HOST:PORT|auto",
    )
    nodes: int | None = option("Number of machines of the cluster. Default: all.", default=None)
    gpus_per_node: int | None = option("Number of GPUs of each machine. Default: all.", default=None)
    node_timeout_s: float = option(
        "Seconds of silence after which a machine of the cluster is lost.",
        default=NODE_TIMEOUT_S,
        flag="--node-timeout",
    )
    ship: AnyPath | None = option(
        "Folder with scripts and data to copy to each machine of --on ray. Default: the machines share their files.",
        default=None,
        form="DIR",
        is_path=True,
    )
    release_idle: str | float | None = option(
        "Give a machine back after this time without a job, such as '10 min'. Default: never.",
        default=None,
        form="TIME",
    )

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            UsageError: They do not, or one names what does not exist.
        """
        if self.on is None:
            _check_absent(
                {
                    "--address": self.address,
                    "--nodes": self.nodes,
                    "--gpus-per-node": self.gpus_per_node,
                    "--ship": self.ship,
                    "--release-idle": self.release_idle,
                },
                "is for runs on other machines: give it with --on",
            )
        elif self.on not in ENGINES:
            raise UsageError(f"--on {self.on}: expected {' or '.join(ENGINES)}")
        elif self.on == "slurm" and self.address is not None:
            raise UsageError("--address is that of a Ray cluster: it does not go with --on slurm")
        elif self.on == "slurm" and self.ship is not None:
            raise UsageError("--ship goes with --on ray: the machines of a Slurm cluster share their file system")
        elif self.on == "ray" and self.address is None and self.release_idle is not None:
            raise UsageError("--release-idle gives machines back to a cluster: name it with --address")
        elif self.wait or self.exclusive:
            raise UsageError(f"{'--wait' if self.wait else '--exclusive'} does not go with --on {self.on}")
        elif not LEAST_NODE_TIMEOUT_S <= self.node_timeout_s < math.inf:
            raise UsageError(f"--node-timeout {self.node_timeout_s:g}: expected {LEAST_NODE_TIMEOUT_S:g} s or more")
        else:
            check_counts(self.nodes, self.gpus_per_node)


@request_class
class RunOptions(MachineOptions):
    """Options of a run. [The table](../commands.md#options-of-run) has their meaning."""

    objective: str = option("What to save.", default="energy", form="energy|jct|makespan|edp", choices="objectives")
    policy: str | None = option(
        "fair, fifo, pack, priority, srtf, tiresias, ...; by default the objective chooses it.",
        default=None,
        form="NAME",
        choices="policies",
    )
    options: Mapping[str, float] = option(
        "A parameter of the policy named by --policy, such as limit_1=3600; may be repeated.",
        default_factory=lambda: MappingProxyType({}),
        form="NAME=NUMBER",
        flag="--option",
        parse=_policy_options,
    )
    device: str | None = option(
        "Devices: names such as cuda:0,cuda:2; all; cpu, or cpu/N for N partitions of the processors. Default: all "
        "GPUs of the model with the most memory, else the processors.",
        default=None,
        form="NAMES",
        choices="run_devices",
    )
    devices: int | None = option(
        "Number of devices: the first of those that --device names. Default: all.",
        default=None,
    )
    lanes: int | None = option(
        "Lanes of each device: jobs of one lane take turns, lanes run side by side. Default: 6 if the policy chooses "
        "which jobs run beside each other, else 1.",
        default=None,
    )
    jobs_per_lane: int | None = option(
        "Largest number of jobs that hold memory in one lane at once. Default: 4.",
        default=None,
    )
    memory: str | int | None = option(
        "Memory limit for all jobs of a device, such as '8 GiB'. Default: all of its memory.",
        default=None,
        form="SIZE",
    )
    host_memory: str | int | None = option(
        "Host memory of a machine for parked jobs, such as '16 GiB': a running job waits with its memory there while "
        "a job that the policy puts before it has its place. Default: no job is parked.",
        default=None,
        form="SIZE",
    )
    power_budget: str | float | None = option(
        "Power that all devices together may draw, such as '1200 W'. Watts go where they buy most of the objective. "
        "Default: no budget.",
        default=None,
        form="WATTS",
    )
    power_budget_by: str = option(
        "Way to keep the power budget: limits sets power limits of the devices, placement sets nothing, and starts a "
        "job only if the modelled power stays within the budget.",
        default=BY_LIMITS,
        form="limits|placement",
    )
    control: Control = option(
        "Control of clocks and power: auto searches the best setting of each packing and uses it, known uses settings "
        "from earlier searches only, off sets nothing.",
        default="auto",
        form="auto|known|off",
        choices="controls",
    )
    tuning_limit: float = option(
        "Limit on the time of an iteration at a setting, relative to the default setting.",
        default=TUNING_LIMIT,
    )
    profiles: AnyPath | None = option(
        "Folder that holds profiles; else that of the user's data.", default=None, form="PATH", is_path=True
    )
    use_profiles: bool = option("Use no profiles of job classes, and measure none.", default=True, flag="--no-profiles")

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            UsageError: They do not, or one names what does not exist.
        """
        check_control(self.control)
        super().check()
        if self.on is not None:
            _check_absent({"--devices": self.devices}, f"does not go with --on {self.on}")
            if self.release_idle is not None and self.power_budget is not None:
                raise UsageError("--release-idle does not go with --power-budget: its shares are those of all devices")
        if self.power_budget is None and self.power_budget_by != BY_LIMITS:
            raise UsageError("--power-budget-by is the way to keep a power budget: give it with --power-budget")
        if self.options and self.policy is None:
            raise UsageError("--option is a policy's: name it with --policy")
        _ = self.memory_bytes, self.host_bytes, self.power_budget_w, self.goal

    def kept(self) -> dict[str, Any]:
        """Values as JSON has them, for a session that goes on with the run. It has its own options of machines."""
        machines = options_of(MachineOptions)
        return {name: value for name, value in kept(self, RunOptions).items() if name not in machines}

    @property
    def memory_bytes(self) -> int | None:
        """Memory (bytes) of each device for its jobs; None for all of it."""
        return size_bytes("--memory", self.memory)

    @property
    def host_bytes(self) -> int:
        """Host memory (bytes) of each machine for parked jobs; 0 to park none."""
        return size_bytes("--host-memory", self.host_memory) or 0

    @property
    def power_budget_w(self) -> float | None:
        """Power budget (W) of all devices together; None for none."""
        return power_w("--power-budget", self.power_budget)

    @property
    def sets(self) -> bool:
        """Whether clocks and power may be set."""
        return self.control != "off"

    @property
    def goal(self) -> Goal | None:
        """Goal of the searches for settings during the run; None for no search."""
        return goal(self.objective, self.tuning_limit, MOST_TRIALS) if self.control == "auto" else None

    @property
    def store(self) -> ProfileStore | None:
        """Profiles of job classes; None to use none and to measure none."""
        return profile_store(self.profiles) if self.use_profiles else None


def check_counts(nodes: int | None, gpus_per_node: int | None, cpus_per_node: int | None = None) -> None:
    """Check numbers of machines, and of parts of each machine.

    Raises:
        UsageError: A number is less than 1.
    """
    options = {"--nodes": nodes, "--gpus-per-node": gpus_per_node, "--cpus-per-node": cpus_per_node}
    for name, number in options.items():
        if number is not None and number < 1:
            raise UsageError(f"{name} {number}: expected 1 or more")


def check_control(name: str) -> None:
    """Check a value of `control`.

    Raises:
        UsageError: It is none.
    """
    if name not in CONTROLS:
        raise UsageError(f"--control {name}: expected auto, known or off", did_you_mean(name, CONTROLS))


def less_control(one: Control, other: Control) -> Control:
    """The one of two values of `control` that allows less."""
    return min(one, other, key=CONTROLS.index)


def size_bytes(name: str, size: str | int | None) -> int | None:
    """Size in bytes from a number or from text such as `8 GiB`; None for None.

    Args:
        name: Name of the option, for the error.
        size: The size.

    Raises:
        UsageError: It is no size.
    """
    from ecoshare.jobs.quantities import parse_size_bytes

    if not isinstance(size, str):
        if size is not None and size < 0:
            raise UsageError(f"{name} {size}: expected a size of at least 0")
        return size
    try:
        return parse_size_bytes(size)
    except ValueError as error:
        raise UsageError(f"{name} {size}: {error}") from error


def power_w(name: str, power: str | float | None) -> float | None:
    """Power in watts from a number or from text such as `1.2 kW`; None for None.

    Args:
        name: Name of the option, for the error.
        power: The power.

    Raises:
        UsageError: It is no power, or not above 0.
    """
    from ecoshare.jobs.quantities import parse_power_w

    return _quantity(name, power, parse_power_w)


def duration_s(name: str, duration: str | float | None) -> float | None:
    """Time in seconds from a number or from text such as `10 min`; None for None.

    Args:
        name: Name of the option, for the error.
        duration: The time.

    Raises:
        UsageError: It is no time, or not above 0.
    """
    from ecoshare.jobs.quantities import parse_duration_s

    found_s = _quantity(name, duration, parse_duration_s)
    if found_s is not None and found_s <= 0.0:
        raise UsageError(f"{name} {duration}: expected a time above 0")
    return found_s


def age_s(name: str, text: str) -> float:
    """Age in seconds.

    Args:
        name: Name of the option, for the error.
        text: The age, with its unit.

    Raises:
        UsageError: The text is no age, or has no unit.
    """
    from ecoshare.jobs.quantities import parse_duration_s

    try:
        if not text[-1:].isalpha():  # a bare number is seconds elsewhere: a lot would be removed by mistake
            raise ValueError(f"expected an age with its unit, such as 30d or 12h, got {text!r}")
        return parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def goal(objective: str, tuning_limit: float, budget: int, seed: int = 0) -> Goal:
    """Goal of a search of settings.

    Args:
        objective: Name of the objective.
        tuning_limit: Upper bound of an iteration's time / its time at the default setting.
        budget: Largest number of measurements.
        seed: Seed of the search.

    Raises:
        UsageError: The limit is not a finite number of at least 1.
    """
    if not (math.isfinite(tuning_limit) and tuning_limit >= 1.0):
        raise UsageError(f"--tuning-limit {tuning_limit:g}: expected a number of at least 1")
    return Goal(objective, tuning_limit, budget, seed)


def profile_store(profiles: AnyPath | None) -> ProfileStore:
    """Store of profiles in a folder; None for that of the user's data.

    Raises:
        UnfitEnvironment: The user has no home folder.
    """
    from ecoshare.knowledge.profile_store import ProfileStore
    from ecoshare.knowledge.profiles_folder import default_folder

    return ProfileStore(default_folder() if profiles is None else Path(profiles))


def _quantity(name: str, value: str | float | None, parse: Callable[[str], float]) -> float | None:
    """Quantity of an option from text, or from a number in the unit that `parse` takes for a bare one; None for None.

    Raises:
        UsageError: It is none.
    """
    if value is None:
        return None
    try:
        return parse(value if isinstance(value, str) else f"{float(value):.10g}")
    except ValueError as error:
        raise UsageError(f"{name} {value}: {error}") from error


def _check_absent(given: Mapping[str, Any], reason: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{name} {reason}")
