"""Maps a file into memory without keeping a descriptor.

`mmap.mmap` keeps one, at the lowest free number. In a user's process, the script could write to that descriptor. The
script could also close it and open a file of its own at the same number, which `mmap` would close in turn.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def mapped(descriptor: int, size: int) -> ctypes.Array[ctypes.c_char]:
    """Map the first `size` bytes of a file, shared with all processes that map it.

    The mapping lasts as long as the result or a part of it is used.

    Raises:
        OSError: If the file cannot be mapped.
    """
    address = _LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    shared = (ctypes.c_char * size).from_address(address)
    # The mapping stays at the end of the process: another thread may look at it then.
    weakref.finalize(shared, _LIBC.munmap, address, size).atexit = False
    return shared
