"""Quantities: texts that are read, texts that are refused, and texts that are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.jobs.quantities import (
    BYTES_BY_UNIT,
    MAX_DURATION_S,
    MAX_SIZE_BYTES,
    SECONDS_BY_UNIT,
    format_duration,
    format_energy,
    format_size,
    parse_duration_s,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("0", 0.0),
        ("0 s", 0.0),
        ("3", 3.0),
        ("250 ms", 0.25),
        ("40us", 4e-5),
        ("2 min", 120.0),
        ("1.5 h", 5400.0),
        (".5 h", 1800.0),
        ("2. s", 2.0),
        ("1e3 s", 1000.0),
        (" 1\td ", 86400.0),
        ("36500 d", MAX_DURATION_S),
    ],
)
def test_durations(text: str, duration_s: float) -> None:
    """If it failed, a limit would be off by the factor of a unit."""
    assert parse_duration_s(text) == pytest.approx(duration_s, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        *("", "s", "nan", "inf", "-1 s", "+1 s", "1 m", "1 M", "2 Min", "1 s s", "1 h 30 min", "1,5 h", "1_0 s"),
        *("٣ s", "1e4000", "36501 d", "9" * 5000, "1 s\0", "0x10"),
    ],
)
def test_what_is_no_duration(text: str) -> None:
    """If it failed, a typing error would become a limit; a message without units would not help."""
    with pytest.raises(ValueError, match=r"us, ms, s, min, h, d|at most 100 years"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0 B", 0),
        ("500 MB", 500_000_000),
        ("2 GiB", 2 * 2**30),
        ("1.5KiB", 1536),
        ("0.1 GB", 100_000_000),
        ("9007199254740993 B", 2**53 + 1),
        (f"{MAX_SIZE_BYTES} B", MAX_SIZE_BYTES),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    """If it failed, a memory budget would be off; 2**53 + 1 is the first that a float cannot hold."""
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "5", "5 b", "5 gb", "5 G", "-5 GB", "nan GB", "5 bytes", f"{MAX_SIZE_BYTES + 1} B", "1e999 B", "9e9 TiB"],
)
def test_what_is_no_size(text: str) -> None:
    """If it failed, `5 Gb` (bits) or a bare number would become some number of bytes."""
    with pytest.raises(ValueError, match=r"B, kB, MB, GB, TB, KiB, MiB, GiB, TiB|at most 8388608 TiB"):
        parse_size_bytes(text)


@given(st.text() | st.from_regex(r"\s*[-+]?[0-9.eE_]+\s*[A-Za-z]*", fullmatch=True))
def test_any_text_is_read_or_refused(text: str) -> None:
    """If it failed, a strange value would end in a traceback, or in a number that no code can use."""
    try:
        assert 0 <= parse_duration_s(text) <= MAX_DURATION_S
    except ValueError as error:
        assert str(error).startswith("expected a duration")
    try:
        assert 0 <= parse_size_bytes(text) <= MAX_SIZE_BYTES
    except ValueError as error:
        assert str(error).startswith("expected a size")


@pytest.mark.parametrize(
    ("duration_s", "shown"),
    [
        (0, "0 s"),
        (1e-9, "0 s"),
        (5e-6, "5 us"),
        (0.25, "250 ms"),
        (0.999, "999 ms"),
        (0.9996, "1 s"),
        (12.54, "12.5 s"),
        (59.97, "1 min"),
        (125, "2 min 5 s"),
        (3599.6, "1 h"),
        (3780, "1 h 3 min"),
        (86_399, "1 d"),
        (187_200, "2 d 4 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_durations_shown(duration_s: float, shown: str) -> None:
    """If it failed, a table would show `60 s`, `0 min 60 s` or a sign on nothing."""
    assert format_duration(duration_s) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**20 - 1, "1 MiB"), (3 * 2**40, "3 TiB"), (-2048, "-2 KiB")],
)
def test_sizes_shown(size_bytes: float, shown: str) -> None:
    """If it failed, a table would show `1024 KiB` or a decimal unit for a binary one."""
    assert format_size(size_bytes) == shown


@pytest.mark.parametrize(
    ("energy_j", "shown"),
    [
        (0, "0 J"),
        (0.085, "85 mJ"),
        (12.34, "12.3 J"),
        (999.6, "1 kJ"),
        (450e3, "450 kJ"),
        (4.5e6, "1.25 kWh"),
        (1.08e10, "3 MWh"),
        (-5e3, "-5 kJ"),
    ],
)
def test_energies_shown(energy_j: float, shown: str) -> None:
    """If it failed, a saving would be shown in the wrong unit or without its sign."""
    assert format_energy(energy_j) == shown


@given(st.floats(min_value=1e-3, max_value=MAX_DURATION_S))
def test_shown_durations_read_back(duration_s: float) -> None:
    """If it failed, what a table shows would differ by more than its rounding from what was measured."""
    number, unit, *rest = format_duration(duration_s).split()
    shown_s = float(number) * SECONDS_BY_UNIT[unit]
    if rest:
        shown_s += float(rest[0]) * SECONDS_BY_UNIT[rest[1]]
    assert shown_s == pytest.approx(duration_s, rel=0.03)


@given(st.integers(min_value=1, max_value=MAX_SIZE_BYTES))
def test_shown_sizes_read_back(size_bytes: int) -> None:
    """If it failed, a table would show a memory size in the wrong unit."""
    shown = format_size(size_bytes)
    assert shown.split()[1] in BYTES_BY_UNIT
    assert float(shown.split()[0]) * BYTES_BY_UNIT[shown.split()[1]] == pytest.approx(size_bytes, rel=0.01)


@pytest.mark.parametrize("format_any", [format_duration, format_size, format_energy])
@pytest.mark.parametrize("unknown", [float("nan"), float("inf")])
def test_what_is_not_known_is_not_shown(format_any: object, unknown: float) -> None:
    """If it failed, `nan kWh` would stand in a report instead of nothing."""
    assert callable(format_any)
    with pytest.raises(ValueError, match="finite"):
        format_any(unknown)
