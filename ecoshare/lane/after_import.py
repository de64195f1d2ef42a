"""Calls a function right after a module has been imported, without importing it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def is_importing(name: str) -> bool:
    """Whether a module is being imported: it is there, and lacks what comes later. A signal handler may ask then."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


class _Finder(MetaPathFinder):
    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_then_act(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:  # only an import counts: libraries also look for torch without it
                    sys.meta_path.remove(self)
                    self._action()

            spec.loader.exec_module = execute_then_act  # type: ignore[method-assign]
        return spec


def after_import(name: str, action: Callable[[], None]) -> None:
    """Call `action` once, right after the module `name` has been imported; at once if it already is."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Finder(name, action))
