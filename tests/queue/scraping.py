"""Scrapes of a queue, as Prometheus makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from ecoshare.queue.queue_folder import socket_address

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
"""Media type that Prometheus asks for first."""


@dataclass(frozen=True)
class Scrape:
    """Answer of a queue.

    Attributes:
        text: The text.
        families: Metrics by their names without suffix.
    """

    text: str
    families: Mapping[str, Metric]

    def values(self, sample: str, /, **labels: str) -> list[float]:
        """Values of the samples of this name that have these labels."""
        return [
            each.value
            for family in self.families.values()
            for each in family.samples
            if each.name == sample and labels.items() <= each.labels.items()
        ]

    def value(self, sample: str, /, **labels: str) -> float:
        """Value of the one sample of this name that has these labels."""
        (value,) = self.values(sample, **labels)
        return value

    @property
    def names(self) -> set[str]:
        """Jobs that have samples of their own."""
        samples = (each for family in self.families.values() for each in family.samples)
        return {each.labels["name"] for each in samples if "name" in each.labels}


def scrape(home: Path, accept: str = OPEN_METRICS) -> Scrape:
    """Metrics of the queue in a folder.

    Args:
        home: Folder of the queue.
        accept: Media type to ask for.
    """
    with socket_address(home / "socket") as address:
        http = httpx.Client(transport=httpx.HTTPTransport(uds=address), base_url="http://queue", timeout=20.0)
        with http:
            answer = http.get("/metrics", headers={"accept": accept})
    assert answer.status_code == 200, answer.text
    is_open = answer.headers["content-type"].startswith("application/openmetrics-text")
    assert is_open == (accept == OPEN_METRICS)
    read = open_metrics if is_open else plain_text
    found = list(read(answer.text))
    assert len({each.name for each in found}) == len(found), "the samples of a metric are not together"
    return Scrape(answer.text, {each.name: each for each in found})
