"""Types of the values in a job file, each with its reader.

A reader takes a value of the file (all scalars are text, see `nodes`) or a value from Python code. It reports a
mistake as a whole sentence, which the user sees unchanged. No sentence repeats a value of `env:`.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from ecoshare.jobs.quantities import parse_duration_s, quoted

MAX_NAME_LENGTH: Final = 100  # a name becomes a folder, and a file name may have 255 bytes

_NAME_PATTERN: Final = rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_VARIABLE = re.compile(r"[^=\s\x00-\x1f\x7f]+")
_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_DECIMAL = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
# For editors that check YAML against the schema: an editor gives each scalar a type, while this code sees its text.
_SCALAR_TYPES: Final = ["string", "number", "boolean", "null"]


class Isolation(StrEnum):
    """Isolation of a job from the other jobs of its lane."""

    PROCESS = "process"  # forked from the warm server
    FRESH = "fresh"  # an interpreter of its own
    LANE = "lane"  # a thread of a process that jobs of one script and lane share


class Launch(StrEnum):
    """How the processes of a job of several devices are started."""

    RANKS = "ranks"  # ecoshare starts one process for each device
    TORCHRUN = "torchrun"  # torchrun starts them


def is_name(text: str) -> bool:
    """Whether a text can be the name of a job."""
    return re.fullmatch(_NAME_PATTERN, text) is not None


def _read_name(value: object) -> object:
    if not isinstance(value, str) or not is_name(value):
        raise ValueError(
            f"expected up to {MAX_NAME_LENGTH} letters, digits, '.', '_' or '-' "
            f"that do not begin with '.' or '-', got {quoted(value)}"
        )
    return value


def _read_module(value: object) -> object:
    if not isinstance(value, str) or not _MODULE.fullmatch(value):
        raise ValueError(f"expected the name of a module such as 'pkg.train', got {quoted(value)}")
    return value


def _read_path(value: object) -> object:
    if not isinstance(value, Path) and (not isinstance(value, str) or not value.strip()):
        raise ValueError(f"expected a path, got {quoted(value)}")
    return value


def _read_program(value: object) -> object:
    # Kept as text, since a Path would turn './python' into a bare name.
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a path or the name of a program, got {quoted(value)}")
    return value


def _read_folder(value: object) -> object:
    return Path() if value is None else _read_path(value)


def _read_text(value: object) -> object:
    # The message never repeats the value: this reader also reads the environment.
    if value is None:
        raise ValueError("expected text; write '' for an empty one")
    if not isinstance(value, str):
        raise ValueError("expected text; put text that begins with '[' or '{' in quotes")
    return value


def _read_arguments(value: object) -> object:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list such as [--epochs, 3], got {quoted(value)}")
    return value


def _read_names(value: object) -> object:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of names such as [prepare], got {quoted(value)}")
    return tuple(_read_name(each) for each in value)


def _read_command(value: object) -> object:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of words such as [notify-send, '{{job}} {{state}}'], got {quoted(value)}")
    if value and isinstance(value[0], str) and not value[0].strip():
        raise ValueError("expected a path or the name of a program as the first word, got ''")
    return value


def _read_environment(value: object) -> object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected a mapping such as {KEY: value}")
    if not all(isinstance(key, str) and _VARIABLE.fullmatch(key) for key in value):
        # The message does not repeat the name: `KEY=value:` would show a value.
        raise ValueError("the name of a variable must not be empty nor hold '=' or blanks")
    return value


def _read_whole_number(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    # Eighteen characters fit the 64 bits of SQLite.
    if not isinstance(value, str) or len(value) > 18 or not _WHOLE.fullmatch(value):
        raise ValueError(f"expected a whole number, got {quoted(value)}")
    return int(value)


def read_number(value: object) -> object:
    """Finite number of the file or of Python code.

    Raises:
        ValueError: The value is no number.
    """
    number = float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value
    if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number):
        raise ValueError(f"expected a number, got {quoted(value)}")
    return number


def _read_duration_s(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"expected a duration such as '2 min', got {quoted(value)}")
    return parse_duration_s(value)


def _read_yes_or_no(value: object) -> object:
    word = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else value
    if word not in ("true", "false"):
        raise ValueError(f"expected true or false, got {quoted(value)}")
    return word == "true"


def _read_isolation(value: object) -> object:
    if value not in list(Isolation):
        raise ValueError(f"expected 'process', 'fresh' or 'lane', got {quoted(value)}")
    return value


def _read_launch(value: object) -> object:
    if value not in list(Launch):
        raise ValueError(f"expected 'ranks' or 'torchrun', got {quoted(value)}")
    return value


def _read_devices(value: object) -> object:
    if re.fullmatch(r"\d*\.\d*[1-9]\d*", str(value).strip()):
        raise ValueError(
            f"expected whole devices, got {quoted(value)}; jobs take turns on a device, and each has the memory that "
            "it needs, so a part of a device needs no number"
        )
    return _read_whole_number(value)


Name = Annotated[str, BeforeValidator(_read_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME_PATTERN}$"})]
Module = Annotated[str, BeforeValidator(_read_module)]
FilePath = Annotated[Path, BeforeValidator(_read_path)]
FolderPath = Annotated[
    Path, BeforeValidator(_read_folder), WithJsonSchema({"type": ["string", "null"], "format": "path"})
]
Program = Annotated[str, BeforeValidator(_read_program)]
Text = Annotated[str, BeforeValidator(_read_text)]
Arguments = Annotated[
    tuple[Text, ...],
    BeforeValidator(_read_arguments),
    WithJsonSchema({"type": ["array", "null"], "items": {"type": _SCALAR_TYPES}}),
]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_read_names),
    WithJsonSchema({"type": ["array", "null"], "items": {"type": "string", "pattern": f"^{_NAME_PATTERN}$"}}),
]
Command = Annotated[
    tuple[Text, ...],
    BeforeValidator(_read_command),
    WithJsonSchema({"type": ["array", "null"], "items": {"type": _SCALAR_TYPES}}),
]
Environment = Annotated[
    dict[str, Text],
    BeforeValidator(_read_environment),
    WithJsonSchema({"type": ["object", "null"], "additionalProperties": {"type": _SCALAR_TYPES}}),
]
# Bounds precede the reader, since the JSON Schema would not show them otherwise.
AnyInteger = Annotated[int, Field(ge=-1_000_000, le=1_000_000), BeforeValidator(_read_whole_number)]
PositiveInteger = Annotated[int, Field(ge=1), BeforeValidator(_read_whole_number)]
Attempts = Annotated[int, Field(ge=0, le=100), BeforeValidator(_read_whole_number)]
Factor = Annotated[float, Field(ge=1), BeforeValidator(read_number)]
Duration = Annotated[
    float,
    BeforeValidator(_read_duration_s),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}),
]
PositiveDuration = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(_read_duration_s),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}),
]
YesOrNo = Annotated[bool, BeforeValidator(_read_yes_or_no), WithJsonSchema({"type": "boolean"})]
IsolationMode = Annotated[Isolation, BeforeValidator(_read_isolation)]
LaunchMode = Annotated[Launch, BeforeValidator(_read_launch)]
DeviceCount = Annotated[int, Field(ge=1), BeforeValidator(_read_devices)]
