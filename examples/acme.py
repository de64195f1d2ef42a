"""Accelerators of the Acme driver."""

import os
from pathlib import Path

from ecoshare.base.device import DeviceInfo
from ecoshare.devices.knob import Access
from ecoshare.devices.meter import CounterMeter
from ecoshare.devices.vendor import ContextSharing, DeviceHealth, DeviceState
from ecoshare.errors import UnfitEnvironment

DRIVER = Path(os.environ.get("ACME_DRIVER", "/sys/class/acme"))


class AcmeDevice:
    def __init__(self, folder):
        self._folder = folder

    def open_meter(self):
        return CounterMeter("acme", self._energy_j).open()

    def state(self):
        return DeviceState(memory_bytes=int((self._folder / "used_bytes").read_text()))

    def health(self):
        return DeviceHealth("" if self._folder.exists() else "the driver does not show it any more")

    def processes(self):
        return {}

    def power_limit_w(self):
        return None

    def close(self):
        pass

    def _energy_j(self):
        return int((self._folder / "energy_uj").read_text()) / 1e6


class NoKnobs:
    knobs = ()
    access = Access(False, "the Acme driver sets nothing")

    def __init__(self):
        self.missing = {"power_limit": "the Acme driver has none"}
        self.clocks_mhz = {}

    def clocks(self):
        return None

    def looks_unlocked(self, knob):
        return True

    def close(self):
        pass


class Acme:
    name, kind, precedence, modules = "acme", "cuda", 5, ()

    def visible(self):
        return [self._info(place, folder) for place, folder in enumerate(sorted(DRIVER.glob("acme*")))]

    def environment(self, devices):
        return {"ACME_VISIBLE": ",".join(each.uuid for each in devices)}

    def nearness(self, devices):
        return {}

    def share_contexts(self, devices, lanes, folder, environment):
        return ContextSharing("the device takes turns by itself")

    def check_torch(self, devices, build):
        if "acme" not in build.version:
            raise UnfitEnvironment(f"torch {build.version} is not built for Acme", "install acme-torch")

    def memory_transfer(self, device, environment):
        raise UnfitEnvironment("the Acme driver moves no memory of a running job", "run without `--host-memory`")

    def power_model(self, device):
        return None

    def open_knobs(self, key):
        return NoKnobs()

    def open(self, device):
        return AcmeDevice(DRIVER / device.uuid)

    def _info(self, place, folder):
        free = int((folder / "free_bytes").read_text())
        return DeviceInfo(f"cuda:{place}", self.kind, self.name, "Acme One", folder.name, free, os.cpu_count())


VENDOR = Acme()
