from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ecoshare
from ecoshare.lane.serving import batch_server


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch": ()}, ValueError, "batch: expected at least one size, got none"),
        ({"batch": (0, 1)}, ValueError, "batch: expected a whole number of at least 1, got 0"),
        ({"batch": (4, -1)}, ValueError, "batch: expected a whole number of at least 1, got -1"),
        ({"batch": (1, 2.0)}, TypeError, "batch: expected a whole number, got 2.0"),
        ({"batch": (1, True)}, TypeError, "batch: expected a whole number, got True"),
        ({"batch": (1, 2, 1)}, ValueError, "batch: expected each size once, got (1, 2, 1)"),
        ({"batch": "8"}, TypeError, "batch: expected whole numbers such as (1, 2, 4, 8), got '8'"),
        ({"p99": 0}, ValueError, "p99: expected a time above 0, got 0"),
        ({"p99": "0 ms"}, ValueError, "p99: expected a time above 0, got '0 ms'"),
        ({"p99": float("nan")}, ValueError, "p99: expected a time above 0, got nan"),
        ({"p99": "50 parsecs"}, ValueError, "p99: expected a duration such as"),
        ({"p99": [1]}, TypeError, "p99: expected a number of seconds, got [1]"),
        ({"queue": 0}, ValueError, "queue: expected a whole number of at least 1, got 0"),
        ({"queue": 2.5}, TypeError, "queue: expected a whole number, got 2.5"),
        ({"sample": 3}, TypeError, "sample must be a function of a number, not int"),
        ({"handler": 3}, TypeError, "the handler must be a function of a list of requests, not int"),
    ],
)
def test_a_wrong_value_is_one_clear_line(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        ecoshare.serve(**({"handler": list} | options))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_values_are_taken_in_the_units_of_the_code() -> None:
    assert batch_server.checked_batch((8, 1, 4)) == (1, 4, 8)
    assert batch_server.checked_batch(np.arange(1, 4)) == (1, 2, 3)
    assert batch_server.checked_target_s("50 ms") == pytest.approx(0.05)
    assert batch_server.checked_target_s(None) == float("inf")


@pytest.mark.parametrize("within_s", [0.0, -1.0, float("inf")])
def test_a_wrong_deadline_of_one_request_is_refused(within_s: float) -> None:
    with ecoshare.serve(list) as server, pytest.raises(ValueError, match="within_s: expected a time above 0"):
        server.submit(1, within_s=within_s)
