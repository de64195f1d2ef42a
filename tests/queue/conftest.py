"""A queue that is served over TCP, too, for the modules that have none of their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.queue.queues import Served, served_over_tcp


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The queue."""
    with served_over_tcp(tmp_path_factory.mktemp("queue")) as found:
        yield found


@pytest.fixture
def http(up: Served) -> Iterator[httpx.Client]:
    """A client without the token."""
    with up.http() as client:
        yield client


@pytest.fixture
def bearer(up: Served) -> dict[str, str]:
    """Header with the token."""
    return up.bearer
