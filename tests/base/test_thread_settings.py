"""Settings that torch and numpy keep for each thread: code of the user finds those of its own thread in ours."""

from __future__ import annotations

import decimal
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from ecoshare.base.thread_settings import ThreadSettings
from tests.warm import ROOT, fork_script

KEPT: ContextVar[str] = ContextVar("KEPT", default="nothing")


def in_new_thread(act: Callable[[], Any]) -> Any:
    """Value of a call in a thread of its own."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join()
    return found[0]


@contextmanager
def put_back(set_: Callable[[Any], object], value: Any, before: Any) -> Iterator[None]:
    set_(value)
    try:
        yield
    finally:
        set_(before)


@contextmanager
def precision(digits: int) -> Iterator[None]:
    with decimal.localcontext() as context:
        context.prec = digits
        yield


SETTINGS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[], Any]]] = {
    "no_grad": (torch.no_grad, torch.is_grad_enabled),
    "inference_mode": (torch.inference_mode, lambda: torch.ones(1).is_inference()),
    "autocast": (lambda: torch.autocast("cpu", torch.float16), lambda: (torch.ones(2, 2) @ torch.ones(2, 2)).dtype),
    "autocast, disabled": (
        lambda: torch.autocast("cpu", cache_enabled=False),
        lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
    ),
    "default device": (lambda: torch.device("meta"), lambda: torch.ones(1).device.type),
    "set_default_device": (
        lambda: put_back(torch.set_default_device, "meta", None),
        lambda: torch.nn.Linear(1, 1).weight.device.type,
    ),
    "set_flush_denormal": (
        lambda: put_back(torch.set_flush_denormal, True, False),
        lambda: (torch.tensor([sys.float_info.min], dtype=torch.float64) / 2).item(),
    ),
    "forward_ad": (lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False), torch._C._is_fwd_grad_enabled),
    "multithreading": (
        lambda: torch.autograd.set_multithreading_enabled(False),
        torch.autograd.is_multithreading_enabled,
    ),
    "optimized_execution": (lambda: torch.jit.optimized_execution(False), torch._C._get_graph_executor_optimize),
    "np.errstate": (lambda: np.errstate(divide="raise"), lambda: np.geterr()["divide"]),
    "decimal": (lambda: precision(3), lambda: decimal.Decimal(1) / 3),
    "context variable": (lambda: put_back(KEPT.set, "mine", "nothing"), KEPT.get),
    "nothing": (nullcontext, lambda: (torch.is_grad_enabled(), torch.get_num_threads())),
}
"""Settings of a thread: a context that makes each, and a function that shows its effect."""


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_thread_that_hands_work_over_holds_where_the_work_is_done(name: str) -> None:
    make, effect = SETTINGS[name]
    before = effect()
    with make():
        settings, here = ThreadSettings(), effect()
    assert name == "nothing" or before != here, "the test looks at nothing"
    assert in_new_thread(lambda: settings.run(effect)) == here
    assert in_new_thread(effect) == effect() == before, "another thread has its own"


def test_settings_that_are_made_later_are_added() -> None:
    with torch.no_grad():
        settings = ThreadSettings()
    with torch.autocast("cpu"):
        settings.add_here()
    found = in_new_thread(lambda: settings.run(lambda: (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))))
    assert found == (False, True)


def test_the_number_of_threads_of_the_process_holds_whenever_it_is_set() -> None:
    """Many servers set it after their service is made. The number from before would then be set again."""
    before = torch.get_num_threads()
    settings = ThreadSettings()
    with put_back(torch.set_num_threads, before + 1, before):
        assert in_new_thread(lambda: settings.run(torch.get_num_threads)) == before + 1


def test_a_number_of_threads_that_the_thread_has_for_itself_is_carried() -> None:
    before = torch.get_num_threads()
    with threadpool_limits(before + 1, "openmp"):
        settings = ThreadSettings()
    found = in_new_thread(lambda: settings.run(torch.get_num_threads))
    torch.set_num_threads(before)  # torch keeps the last number of any thread for threads that are still to come
    assert found == before + 1


def test_two_threads_may_have_the_settings_of_one() -> None:
    settings, both = ThreadSettings(), threading.Barrier(2, timeout=20.0)
    with ExitStack() as ends:
        for _ in range(2):
            thread = threading.Thread(target=settings.run, args=(both.wait,))
            ends.callback(thread.join)
            thread.start()
    assert not both.broken


LEFT_OUT = {
    "_jit_set_inline_everything_mode": "for the compiler of TorchScript, while it compiles",
    "_set_meta_in_tls_dispatch_include": "for fake tensors, inside of torch",
    "_set_only_lift_cpu_tensors": "for fake tensors, inside of torch",
    "set_inplace_requires_grad_allowed": "for transforms of functorch, while they run",
    "set_single_level_autograd_function_allowed": "for transforms of functorch, while they run",
    **{
        f"set_autocast_{kind}_{what}": "for a device that no job has"
        for kind in ("ipu", "xla")
        for what in ("dtype", "enabled")
    },
}
"""Settings of a thread that are not carried, with the reason."""

FINDS = """
import re, sys, threading, warnings
import torch
from ecoshare.base.thread_settings import ThreadSettings

warnings.simplefilter("ignore")

def in_new_thread(act):
    found = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start(); thread.join()
    return found[0] if found else None

threading.excepthook = lambda args: None
owners = [torch, torch._C, torch.autograd, torch._C._functorch]
for owner in owners:
    names = {name for name in dir(owner) if callable(getattr(owner, name, None))}
    for setter in sorted(name for name in names if re.search("(^|_)set_", name)):
        before_, after_ = re.split("set_", setter, maxsplit=1)
        stems = {after_, after_.removesuffix("_enabled")}
        forms = ("get_{}", "is_{}", "is_{}_enabled", "{}")
        getters = {start + form.format(stem) for start in (before_, "_", "") for stem in stems for form in forms}
        for getter in sorted(getters & names - {setter}):
            get, set_ = getattr(owner, getter), getattr(owner, setter)
            try:
                old = get()
                if isinstance(old, bool):
                    new = not old
                elif isinstance(old, torch.dtype):
                    new = torch.float64
                else:
                    continue
                set_(new)
            except Exception:
                continue
            if get() == new and in_new_thread(get) == old:
                settings = ThreadSettings()
                print(setter, in_new_thread(lambda: settings.run(get)) == new)
            set_(old)
"""


@pytest.mark.nightly
def test_no_setting_of_a_thread_in_this_torch_is_missing(tmp_path: Path) -> None:
    """If it failed, a new version of torch keeps something for each thread that is neither carried nor left out.

    All pairs of functions are tried of which one sets a flag or a type, and the other reads it, by their names.
    """
    script = tmp_path / "finds.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{FINDS}")
    done = fork_script(script, cwd=tmp_path, environment=dict(os.environ))
    printed = done[1] if done is not None else subprocess.check_output([sys.executable, script], cwd=tmp_path)
    found = dict(line.split() for line in printed.decode().splitlines())
    assert {"set_grad_enabled", "set_autocast_cpu_enabled", "set_autocast_gpu_dtype"} <= found.keys(), found
    missing = {name for name, is_carried in found.items() if is_carried != "True"}
    assert missing <= LEFT_OUT.keys()
