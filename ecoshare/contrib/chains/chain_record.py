"""Record of a chain of allocations: `chain.json` in the chain's folder, with a copy in the folder of its run."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ecoshare.base import documents
from ecoshare.contrib.chains.allocation_chain import AllocationChain
from ecoshare.errors import UsageError
from ecoshare.record.run_folder import write_bytes

FILE = "chain.json"
"""Name of the file."""

_CHAIN = TypeAdapter(AllocationChain)
_MOST_BYTES = 16 * 2**20


def read_chain(folder: Path) -> AllocationChain | None:
    """Chain by the record in a folder; None if it has none.

    Raises:
        UsageError: The record cannot be read.
    """
    path = folder / FILE
    try:
        return _CHAIN.validate_json(documents.read_begin(path, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not the record of a chain"
        raise UsageError(f"{path}: {reason}", "move it away to begin a new chain") from error


def write_chain(folder: Path, chain: AllocationChain) -> None:
    """Write the record of a chain.

    Raises:
        UnfitEnvironment: The disk is full, or permission is missing.
    """
    write_bytes(folder / FILE, _CHAIN.dump_json(chain, indent=2) + b"\n")


def as_plain_chain(chain: AllocationChain) -> dict[str, object]:
    """The chain as values of JSON."""
    plain: dict[str, object] = _CHAIN.dump_python(chain, mode="json")
    return plain
