"""Entry to a queue over TCP, beside its socket: an address of this machine alone, and a token.

The token is made anew at each `up`. A queue that was killed frees its port, and any user of the machine can listen
there then. Browsers and scrapers would send that user the token, so it must be worth nothing in the next session.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.queue.queue_folder import QueueFolder, own_folder

_EXAMPLE = "127.0.0.1:8265"
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address that a queue listens at.

    Attributes:
        host: Loopback address: of IPv4, or of IPv6 without brackets.
        port: Port; 0 for any free one.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Address from `HOST:PORT`.

        Raises:
            UsageError: The text is no such address, or other machines could reach it.
        """
        match = re.fullmatch(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):(?P<port>\d{1,5})", text, re.ASCII)
        if match is None or int(match["port"]) > 65535:
            raise UsageError(f"--listen {text!r}: expected HOST:PORT, such as {_EXAMPLE}")
        # A name could stand for several addresses, and another user may listen at those that are left.
        host = "127.0.0.1" if match["host"] == "localhost" else match["host"].strip("[]")
        try:
            is_loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            raise UsageError(
                f"--listen {text}: a queue listens at loopback addresses only, since nothing encrypts its connections",
                f"--listen 127.0.0.1:{match['port']}, and on the other machine "
                f"`ssh -L {match['port']}:127.0.0.1:{match['port']} {socket.gethostname()}`",
            )
        return cls(host, int(match["port"]))

    @property
    def in_brackets(self) -> str:
        """Host as it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host


@dataclass(frozen=True, slots=True)
class TcpEntry:
    """An address that is listened at, and the token that its clients must have.

    Attributes:
        listener: The listening socket.
        address: URL without a path, such as `http://127.0.0.1:8265`.
        token: The token.
    """

    listener: socket.socket
    address: str
    token: str = field(repr=False)

    @property
    def page(self) -> str:
        """URL of the page with the token. Browsers send the fragment of a URL to no server, and in no Referer."""
        return page_url(self.address, self.token)


def page_url(address: str, token: str) -> str:
    return f"{address}/#token={token}"


@contextlib.contextmanager
def tcp_entry(folder: QueueFolder, listen: ListenAddress | None) -> Iterator[TcpEntry | None]:
    """Context manager: listen at an address, with a new token in the folder of the queue; do neither for None.

    Raises:
        UnfitEnvironment: The address is in use, or the folder cannot be written.
    """
    _forget(folder)  # a queue that was killed has left its own
    if listen is None:
        yield None
        return
    with _listening(listen) as listener:
        address = f"http://{listen.in_brackets}:{listener.getsockname()[1]}"
        entry = TcpEntry(listener, address, secrets.token_urlsafe(32))
        _write(folder, entry)
        try:
            yield entry
        finally:
            _forget(folder)


@contextlib.contextmanager
def _listening(listen: ListenAddress) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((listen.host, listen.port))
            listener.listen(_BACKLOG)  # at once: a port that is only bound can be taken by another process
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnfitEnvironment(
                f"--listen {listen.in_brackets}:{listen.port}: {reason}",
                f"--listen {listen.in_brackets}:0 takes any free port",
            ) from error
        yield listener


def _write(folder: QueueFolder, entry: TcpEntry) -> None:
    for path, text in ((folder.token, entry.token), (folder.address, entry.address)):
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(file, "w") as written:
                written.write(text)
        except OSError as error:
            raise UnfitEnvironment(f"cannot write {path}: {error.strerror or error}") from error


def _forget(folder: QueueFolder) -> None:
    for path in (folder.token, folder.address):
        with contextlib.suppress(OSError):
            path.unlink()


def page_of(folder: QueueFolder) -> str | None:
    """URL of the page of a queue with the token; None if the queue listens at no address.

    Raises:
        UnfitEnvironment: Another user may have written the address.
    """
    try:
        with own_folder(folder.path) as opened:
            here = Path(f"/proc/self/fd/{opened}")
            return page_url((here / folder.address.name).read_text(), (here / folder.token.name).read_text())
    except OSError:
        return None


def is_in_journal(descriptor: int) -> bool:
    """Whether a descriptor writes to the journal of systemd, which users of the group `adm` can read."""
    with contextlib.suppress(OSError):
        written = os.fstat(descriptor)
        return os.environ.get("JOURNAL_STREAM") == f"{written.st_dev}:{written.st_ino}"
    return False
