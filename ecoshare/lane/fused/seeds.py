"""States of the random generators that scripts share through modules: Python's, numpy's and torch's.

The states of Python and numpy are read and written as memory: their own functions take 9 and 60 us per hand-over. Both
have a Mersenne twister of 624 words. Both make two normal deviates at a time and keep one for the next call. The
addresses are searched once, and checked.
"""

from __future__ import annotations

import ctypes
import random
import struct
from typing import Any

import numpy
import torch

_WORDS = 624
_TWISTER_BYTES = 4 * _WORDS + 4  # the words, and the position in them


class PythonState:
    """State of the generator behind the functions of `random`."""

    def __init__(self) -> None:
        """Find the state in memory.

        Raises:
            ValueError: If the state is not found.
        """
        self._random: Any = random._inst
        words = self._random.getstate()[1]
        # struct { int index; uint32_t state[624]; }
        sought = struct.pack(f"={_WORDS + 1}I", words[-1], *words[:-1])
        offset = ctypes.string_at(id(self._random), type(self._random).__basicsize__).find(sought)
        if offset < 0:
            raise ValueError("the state of Python's random numbers was not found")
        self._address = id(self._random) + offset

    def get(self) -> tuple[bytes, float | None]:
        """Present state."""
        return ctypes.string_at(self._address, _TWISTER_BYTES), self._random.gauss_next

    def set(self, state: tuple[bytes, float | None]) -> None:
        """Set the state."""
        ctypes.memmove(self._address, state[0], _TWISTER_BYTES)
        self._random.gauss_next = state[1]


class NumpyState:
    """State of the generator behind the functions of `numpy.random`."""

    def __init__(self) -> None:
        """Find the state in memory.

        Raises:
            ValueError: If the state is not found, or numpy has another global generator.
        """
        self._random = numpy.random.mtrand._rand
        generator = self._random._bit_generator
        if type(generator).__name__ != "MT19937":
            raise ValueError("numpy's global generator is not the one that it comes with")
        self._address = generator.ctypes.state_address  # struct { uint32_t key[624]; int pos; }
        self._spare = self._find_spare()

    def get(self) -> bytes:
        """Present state."""
        return ctypes.string_at(self._address, _TWISTER_BYTES) + ctypes.string_at(self._spare, 16)

    def set(self, state: bytes) -> None:
        """Set the state."""
        ctypes.memmove(self._address, state, _TWISTER_BYTES)
        ctypes.memmove(self._spare, state[_TWISTER_BYTES:], 16)

    def _find_spare(self) -> int:
        """Address of `int has_gauss; double gauss` inside the generator object."""
        before = self._random.get_state(legacy=False)
        try:
            sought = 1.2345678901234567e-67
            self._random.set_state({**before, "has_gauss": 1, "gauss": sought})
            here = id(self._random)
            offset = ctypes.string_at(here, type(self._random).__basicsize__).find(struct.pack("d", sought))
            if offset < 8 or ctypes.c_int.from_address(here + offset - 8).value != 1:
                raise ValueError("the normal deviate that numpy keeps was not found")
            return here + offset - 8
        finally:
            self._random.set_state(before)


class Seeds:
    """States of all generators: Python's, numpy's, torch's, and those of CUDA devices once CUDA is initialised."""

    def __init__(self) -> None:
        self._python, self._numpy = PythonState(), NumpyState()

    def get(self) -> list[Any]:
        """Present states."""
        states: list[Any] = [self._python.get(), self._numpy.get(), torch.default_generator.get_state()]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states += [each.get_state() for each in torch.cuda.default_generators]
        return states

    def set(self, states: list[Any]) -> None:
        """Set the states. A device that was not initialised at `get` stays as it is."""
        self._python.set(states[0])
        self._numpy.set(states[1])
        torch.default_generator.set_state(states[2])
        for each, state in zip(torch.cuda.default_generators, states[3:], strict=False):
            each.set_state(state)
