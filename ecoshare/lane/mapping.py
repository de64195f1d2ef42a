"""Makes a file of shared memory, and maps it without keeping a descriptor.

`mmap.mmap` keeps one, at the lowest free number. In a user's process, the script could write to that descriptor. The
script could also close it and open a file of its own at the same number, which `mmap` would close in turn.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def create_file(path: Path, layout: ctypes.Structure) -> None:
    """Make the file at `path`, which must not exist, with this content.

    Raises:
        OSError: If the file exists, or there is no room.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if os.write(handle, bytes(layout)) < ctypes.sizeof(layout):  # a look beyond the end of the file would kill
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


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
