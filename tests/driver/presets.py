"""Models of GPUs. Their figures are like those of the boards with the same names, but are not measured on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.driver.state import Coefficients, Gpu
from tests.driver.state import Profile as ProfileRecord

SHUTDOWN_C = 95
"""Temperature (°C) at which every board turns itself off."""

SOFTWARE_THERMAL, RELIABILITY = 0x20, 0x400
"""Bits of NVML's reasons for a clock. A GeForce board shows the second one at its full boost, below its table."""

CAPABILITIES = {4: 60, 5: 70, 6: 75, 7: 80, 8: 89, 9: 90, 10: 100}
"""Compute capabilities of the first boards of each architecture: 86 is 8.6."""

CANNOT = 2
"""MIG mode of a board without MIG."""


@dataclass(frozen=True)
class Profile:
    """Workload power profile of a board, with an invented effect.

    Attributes:
        number: Number in the masks of NVML.
        priority: Priority; the smaller one wins among profiles that conflict.
        conflicts: Numbers of profiles that it excludes.
        limit_w: Power limit that it sets while it is enforced; 0 for none. Afterwards the default limit is set.
        ceiling_mhz: Highest graphics clock under it; 0 for no bound.
    """

    number: int
    priority: int
    conflicts: tuple[int, ...] = ()
    limit_w: int = 0
    ceiling_mhz: int = 0

    def record(self) -> ProfileRecord:
        """The profile as `state.h` lays it out."""
        record = ProfileRecord(self.number, self.priority, 1000 * self.limit_w, self.ceiling_mhz)
        for number in self.conflicts:
            record.conflicts[number // 32] |= 1 << number % 32
        return record


@dataclass(frozen=True)
class Preset:
    """One GPU model.

    Attributes:
        clocks_mhz: Graphics clocks of each memory clock; both begin with the highest.
        coefficients: Coefficients of the power model, in the order of `state.Coefficients`.
        limits_w: Lowest, default and highest power limit.
        boost_mhz: Graphics clock that it achieves at most, for the reasons in `boost_reasons`; 0 for that of the table.
        loaded_memory_mhz: Highest memory clock while a process is there; 0 for that of the table.
        sampled_ms: Time for which the energy counter looks in each of its periods, for all of it; 0 for always.
        capability: Compute capability, 86 for 8.6; 0 for that of the first boards of its architecture.
        lacks: Pattern of the functions that this board does not support; empty for none.
    """

    name: str
    architecture: int
    memory_bytes: int
    limits_w: tuple[int, int, int]
    clocks_mhz: dict[int, tuple[int, ...]]
    coefficients: tuple[float, ...]
    mig_mode: int = CANNOT
    compute_mode: int = 0
    reserved_bytes: int = 512 * 2**20
    profiles: tuple[Profile, ...] = ()
    has_ecc: bool = True
    boost_mhz: int = 0
    boost_reasons: int = 0
    loaded_memory_mhz: int = 0
    sampled_ms: int = 0
    capability: int = 0
    lacks: str = ""

    def gpu(self, index: int) -> Gpu:
        """State of such a GPU after the start of the machine."""
        lowest_w, default_w, highest_w = self.limits_w
        gpu = Gpu(
            name=self.name.encode(),
            uuid=f"GPU-{index:08x}-0000-4000-8000-000000000000".encode(),
            memory_bytes=self.memory_bytes,
            reserved_bytes=self.reserved_bytes,
            architecture=self.architecture,
            capability=self.capability or CAPABILITIES[self.architecture],
            compute_mode=self.compute_mode,
            mig_mode=self.mig_mode,
            temperature_c=40,
            shutdown_c=SHUTDOWN_C,
            has_ecc=self.has_ecc,
            ceiling_mhz=self.boost_mhz,
            ceiling_reasons=self.boost_reasons,
            loaded_memory_mhz=self.loaded_memory_mhz,
            sampled_ms=self.sampled_ms,
            limit_mw=1000 * default_w,
            default_limit_mw=1000 * default_w,
            lowest_limit_mw=1000 * lowest_w,
            highest_limit_mw=1000 * highest_w,
            memory_clocks=len(self.clocks_mhz),
            coefficients=Coefficients(*self.coefficients),
            profiles=len(self.profiles),
        )
        for place, profile in enumerate(self.profiles):
            gpu.profile[place] = profile.record()
        for row, (memory_mhz, graphics_mhz) in enumerate(self.clocks_mhz.items()):
            gpu.memory_clock_mhz[row] = memory_mhz
            gpu.graphics_clocks[row] = len(graphics_mhz)
            gpu.graphics_clock_mhz[row][: len(graphics_mhz)] = graphics_mhz
        memory_mhz, graphics_mhz = next(iter(self.clocks_mhz.items()))
        gpu.application_mhz[:] = gpu.default_application_mhz[:] = graphics_mhz[0], memory_mhz
        return gpu


def _clocks(highest_mhz: int, lowest_mhz: int) -> tuple[int, ...]:
    return tuple(range(highest_mhz, lowest_mhz - 1, -15))


H200 = Preset(
    "NVIDIA H200",
    architecture=9,
    memory_bytes=143_771 * 2**20,
    limits_w=(200, 700, 700),
    clocks_mhz={3201: _clocks(1980, 345)},
    coefficients=(65.0, 15.0, 40.0, 430.0, 230.0, 1.3, 0.65, 0.45),
    mig_mode=0,
)
"""Board with HBM and one memory clock."""

MAX_P, MAX_Q, COMPUTE, MEMORY_BOUND, HIGH = 0, 1, 2, 3, 40

B200 = Preset(
    "NVIDIA B200",
    architecture=10,
    memory_bytes=183_359 * 2**20,
    limits_w=(200, 1000, 1000),
    clocks_mhz={3996: _clocks(1965, 120)},
    coefficients=(90.0, 20.0, 50.0, 600.0, 280.0, 1.3, 0.65, 0.45),
    mig_mode=0,
    profiles=(
        Profile(MAX_P, 1, (MAX_Q,)),
        Profile(MAX_Q, 2, (MAX_P,), limit_w=640, ceiling_mhz=1500),
        Profile(COMPUTE, 3, (MEMORY_BOUND,)),
        Profile(MEMORY_BOUND, 4, (COMPUTE,), ceiling_mhz=1200),
        Profile(HIGH, 5),
    ),
)
"""Board with workload power profiles: one moves limit and clock, two conflict, and one is newer than its name."""

V100 = Preset(
    "Tesla V100-SXM2-16GB",
    architecture=5,
    memory_bytes=16_384 * 2**20,
    limits_w=(150, 300, 300),
    clocks_mhz={877: _clocks(1530, 135)},
    coefficients=(28.0, 8.0, 18.0, 200.0, 80.0, 1.3, 0.7, 0.5),
)
"""Oldest board with an energy counter; it reports momentary power, not an average."""

A4000 = Preset(
    "NVIDIA RTX A4000",
    architecture=7,
    memory_bytes=16_376 * 2**20,
    limits_w=(100, 140, 140),
    clocks_mhz={7001: _clocks(2100, 210), 5001: _clocks(1650, 210)},
    coefficients=(12.0, 6.0, 10.0, 95.0, 45.0, 1.3, 0.65, 0.45),
    has_ecc=False,
    capability=86,
)
"""Board with two memory clocks, each with graphics clocks of its own (the real board has more)."""

GEFORCE = Preset(
    "NVIDIA GeForce RTX 4090",
    architecture=8,
    memory_bytes=24_564 * 2**20,
    limits_w=(150, 450, 600),
    clocks_mhz={10501: _clocks(3105, 735), 10251: _clocks(3105, 735), 810: _clocks(3105, 735)},
    coefficients=(20.0, 8.0, 30.0, 330.0, 80.0, 1.3, 0.7, 0.5),
    has_ecc=False,
    boost_mhz=2655,
    boost_reasons=RELIABILITY,
    loaded_memory_mhz=10251,
    lacks="nvmlDevice@(GetApplicationsClock|GetDefaultApplicationsClock)",
)
"""Board that boosts below its table, and computes at a memory clock below the highest (P2)."""

SILENT_GEFORCE = replace(GEFORCE, boost_reasons=0)
"""The same board as other drivers show it: it tells no reason for its clock."""

RTX_5090 = Preset(
    "NVIDIA GeForce RTX 5090",
    architecture=10,
    memory_bytes=32_607 * 2**20,
    limits_w=(400, 575, 600),
    clocks_mhz={14001: _clocks(3090, 1020), 13801: _clocks(3090, 1020), 810: _clocks(3090, 1020)},
    coefficients=(25.0, 10.0, 35.0, 420.0, 100.0, 1.3, 0.7, 0.5),
    has_ecc=False,
    boost_mhz=2932,
    loaded_memory_mhz=13801,
    capability=120,
    lacks=GEFORCE.lacks,
)
"""Board that boosts near the end of its table, and tells no reason."""

LAPTOP = Preset(
    "NVIDIA GeForce RTX 4070 Laptop GPU",
    architecture=8,
    memory_bytes=8_188 * 2**20,
    limits_w=(5, 80, 80),
    clocks_mhz={8001: _clocks(3105, 735), 810: _clocks(3105, 735)},
    coefficients=(8.0, 4.0, 8.0, 60.0, 25.0, 1.3, 0.7, 0.5),
    has_ecc=False,
    boost_mhz=1980,
    boost_reasons=SOFTWARE_THERMAL,
    lacks="nvmlDevice@(SetPowerManagementLimit|GetApplicationsClock|GetDefaultApplicationsClock)",
)
"""Board that is always warm; the maker has fixed the power limit."""

GB10 = Preset(
    "NVIDIA GB10",
    architecture=10,
    memory_bytes=122_560 * 2**20,
    limits_w=(20, 140, 140),
    clocks_mhz={8533: _clocks(2418, 210)},
    coefficients=(12.0, 5.0, 10.0, 90.0, 25.0, 1.3, 0.65, 0.45),
    has_ecc=False,
    capability=121,
    lacks="nvmlDevice@(GetMemoryInfo*|GetComputeMode|GetMigMode|*PowerManagement*|*MemoryLockedClocks)",
)
"""Board that shares the memory of the machine, and is asked for much that it does not support."""

A100 = Preset(
    "NVIDIA A100-SXM4-80GB",
    architecture=7,
    memory_bytes=81_920 * 2**20,
    limits_w=(100, 400, 400),
    clocks_mhz={1593: _clocks(1410, 210)},
    coefficients=(45.0, 10.0, 25.0, 260.0, 110.0, 1.3, 0.65, 0.45),
    mig_mode=0,
    sampled_ms=25,
)
"""Board with an energy counter that looks a quarter of the time (arXiv 2312.02741)."""

H100 = Preset(
    "NVIDIA H100 80GB HBM3",
    architecture=9,
    memory_bytes=81_559 * 2**20,
    limits_w=(200, 700, 700),
    clocks_mhz={2619: _clocks(1980, 345)},
    coefficients=(71.3, 10.0, 40.7, 430.0, 150.0, 1.3, 0.65, 0.45),
    mig_mode=0,
    sampled_ms=25,
)
"""Board that draws 72 W while it is empty, and 122 W while a context without work holds its clocks."""

L40S = Preset(
    "NVIDIA L40S",
    architecture=8,
    memory_bytes=46_068 * 2**20,
    limits_w=(100, 350, 350),
    clocks_mhz={9001: _clocks(2520, 210)},
    coefficients=(35.8, 6.0, 60.2, 190.0, 60.0, 1.3, 0.65, 0.45),
)
"""Board that draws 36 W while it is empty, and 102 W with a context."""

P100 = Preset(
    "Tesla P100-PCIE-16GB",
    architecture=4,
    memory_bytes=16_384 * 2**20,
    limits_w=(125, 250, 250),
    clocks_mhz={715: _clocks(1320, 540)},
    coefficients=(25.0, 6.0, 12.0, 165.0, 60.0, 1.3, 0.7, 0.5),
)
"""Board that is too old for an energy counter."""

ALL = (H200, B200, V100, A4000, GEFORCE, SILENT_GEFORCE, RTX_5090, LAPTOP, GB10, A100, H100, L40S, P100)
"""All boards."""
