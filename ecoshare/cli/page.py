"""`ecoshare page`."""

from __future__ import annotations

from ecoshare.cli.options import QueueOption
from ecoshare.queue.queue_folder import DEFAULT_NAME


def page(name: QueueOption = DEFAULT_NAME) -> None:
    """Print the address of a queue's page, with the token that opens it: `ecoshare up --listen` serves it."""
    from ecoshare.api.queue_client import Queue

    print(Queue(name).page())
