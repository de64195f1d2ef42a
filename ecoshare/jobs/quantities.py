"""Convert quantities such as `2 min` and `1.5 GiB` to and from the units of the code.

A job file or an option is parsed once, on entry. After that, every number carries its unit in its name.
Formatting is for tables and messages, never for files that a program reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

SECONDS_BY_UNIT: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
BYTES_BY_UNIT: Final = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

WATTS_BY_UNIT: Final = {"mW": 1e-3, "W": 1.0, "kW": 1e3, "MW": 1e6}

# A century fits every timeout of the standard library (`threading.TIMEOUT_MAX` is 292 years).
MAX_DURATION_S: Final = 100 * 365 * 86400.0
MAX_SIZE_BYTES: Final = 2**63 - 1

# Decimal digits only: float() alone would let through `nan`, `1_0` and digits of other scripts. The length
# is bounded because Python raises its own error for a number of thousands of digits.
_QUANTITY = re.compile(r"((?:[0-9]{1,24}\.?[0-9]{0,24}|\.[0-9]{1,24})(?:[eE][+-]?[0-9]{1,3})?)[ \t]*([A-Za-z]*)")

QUOTE_LIMIT = 60  # characters, so that a message stays on one line for any value


def quoted(value: object) -> str:
    """Short text that stands for a value from a job file.

    Text is quoted with control characters escaped, so that no message can move the cursor of a terminal.
    Never call it with a value of `env:`, which must not reach a log.
    """
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value if len(value) <= QUOTE_LIMIT else value[: QUOTE_LIMIT - 3] + "...")
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    return quoted(str(value))


def parse_duration_s(text: str) -> float:
    """Duration in seconds; a bare number is seconds.

    Raises:
        ValueError: The text is no duration, is negative, or is longer than a century.
    """
    duration_s = _value(text, SECONDS_BY_UNIT, "a duration such as '250 ms', '2 min' or '1.5 h'", "seconds")
    if duration_s > MAX_DURATION_S:
        raise ValueError(f"expected a duration of at most 100 years, got {quoted(text)}")
    return duration_s


def parse_size_bytes(text: str) -> int:
    """Size in bytes, rounded to a whole byte.

    Raises:
        ValueError: The text is no size, is negative, has no unit, or exceeds a signed 64-bit number.
    """
    number, unit = _split(text)
    factor = BYTES_BY_UNIT.get(unit)
    if number is None or factor is None:
        raise ValueError(
            "expected a size with its unit, such as '500 MB' or '2 GiB' "
            f"(units: {', '.join(BYTES_BY_UNIT)}), got {quoted(text)}"
        )
    # Decimal is exact, a float is not. The float check comes first, since Decimal would write out all digits of 1e999.
    if float(number) * factor <= 2 * MAX_SIZE_BYTES:
        size_bytes = round(Decimal(number) * factor)
        if size_bytes <= MAX_SIZE_BYTES:
            return size_bytes
    raise ValueError(f"expected a size of at most {format_size(MAX_SIZE_BYTES)}, got {quoted(text)}")


def parse_power_w(text: str) -> float:
    """Power in watts; a bare number is watts.

    Raises:
        ValueError: The text is no power, or it is 0 or too large for a float.
    """
    power_w = _value(text, WATTS_BY_UNIT, "a power such as '1200 W' or '1.2 kW'", "watts")
    if not 0.0 < power_w < math.inf:
        raise ValueError(f"expected a power above 0, got {quoted(text)}")
    return power_w


def format_duration(duration_s: float) -> str:
    """Duration as text for people: `250 ms`, `12.5 s`, `2 min 5 s`, `1 h 3 min`, `2 d 4 h`.

    Raises:
        ValueError: The number is not finite; the caller shows an unknown duration itself.
    """
    sign, size_s = _sign_and_size(duration_s)
    for unit in ("us", "ms", "s"):
        shown = _three_digits(size_s / SECONDS_BY_UNIT[unit])
        if shown == "0":
            return "0 s"
        if float(shown) < (60 if unit == "s" else 1000):
            return f"{sign}{shown} {unit}"
    for large, small in (("min", "s"), ("h", "min"), ("d", "h")):
        small_per_large = round(SECONDS_BY_UNIT[large] / SECONDS_BY_UNIT[small])
        whole, rest = divmod(round(size_s / SECONDS_BY_UNIT[small]), small_per_large)
        if large == "d" or whole < (60 if large == "min" else 24):
            break
    return f"{sign}{whole} {large} {rest} {small}" if rest else f"{sign}{whole} {large}"


def format_size(size_bytes: float) -> str:
    """Size as text for people, in binary units with up to three digits: `512 B`, `1.5 GiB`.

    Raises:
        ValueError: The number is not finite.
    """
    return _scaled(size_bytes, {unit: BYTES_BY_UNIT[unit] for unit in ("B", "KiB", "MiB", "GiB", "TiB")}, "B")


def format_energy(energy_j: float) -> str:
    """Energy as text for people: `85 mJ`, `12.3 J`, `450 kJ`, and from one kWh on `1.25 kWh`, `3 MWh`.

    Savings may be negative and keep their sign.

    Raises:
        ValueError: The number is not finite.
    """
    return _scaled(energy_j, {"mJ": 1e-3, "J": 1, "kJ": 1e3, "kWh": 3.6e6, "MWh": 3.6e9}, "J")


def _value(text: str, factors: Mapping[str, float], what: str, base: str) -> float:
    """Value in the unit of the factor 1, which a bare number has, too.

    Raises:
        ValueError: The text is no such quantity.
    """
    number, unit = _split(text)
    factor = factors.get(unit) if unit else 1.0
    if number is None or factor is None:
        units = ", ".join(factors)
        raise ValueError(f"expected {what} (units: {units}; a bare number is {base}), got {quoted(text)}")
    return float(number) * factor


def _split(text: str) -> tuple[str | None, str]:
    match = _QUANTITY.fullmatch(text.strip())
    return (match[1], match[2]) if match else (None, "")


def _scaled(value: float, factors: Mapping[str, float], base: str) -> str:
    """The value in the largest unit that shows it as one or more; zero in the base unit. Factors ascend."""
    sign, size = _sign_and_size(value)
    unit = next(iter(factors))
    if _three_digits(size / factors[unit]) == "0":
        return f"0 {base}"
    for larger in factors:
        # The rounded text decides, not the exact value: 1023.9 KiB must not become `1024 KiB`.
        if float(_three_digits(size / factors[unit])) * factors[unit] >= factors[larger]:
            unit = larger
    return f"{sign}{_three_digits(size / factors[unit])} {unit}"


def _sign_and_size(value: float) -> tuple[str, float]:
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value}")
    return ("-" if value < 0 else ""), abs(value)


def _three_digits(value: float) -> str:
    """Text with three significant digits below a thousand, and with all integer digits above it."""
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    shown = f"{value:.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def number(value: float) -> str:
    """Text of a number with three significant digits, and with all integer digits."""
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
