"""Schema of the key `sweep:`: trials of one script, which differ in some values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from ecoshare.jobs import fields
from ecoshare.jobs.quantities import quoted
from ecoshare.jobs.trial_sampler import Choice, Range

_PLACE = re.compile(r"\{(:[a-z])?\}")
_BLANK = r"[^\S\r\n]"
_NUMBER = r"(?a:([-+]?(?<!\d)(?:\d++(?:\.\d*+)?(?:e[-+]?\d++)?|\.\d++(?:e[-+]?\d++)?|inf(?:inity)?|nan)))"
"""ASCII only, as `float` needs: without the flag, a match that ignores case takes U+0131 for `i`. A group of digits
matches as a whole or not at all, so the time for a line is linear in its length for any output."""

_ENDS = r"(?!\.*+\w)(?!,\d{3}(?!\d))"
"""End of a number, where no further part can follow: `1x`, `1.2.3` and `1,234` do not match."""

_LINE_ENDS = re.compile(r"[\r\n]")
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Metric:
    """Metric of a sweep, as the job file names it.

    Attributes:
        text: Text in the job file: `val_loss={:f}` for printed values, `val_loss` for `ecoshare.report(val_loss=...)`.
    """

    text: str

    @property
    def is_printed(self) -> bool:
        """True if the metric is read from the output of the script."""
        return _PLACE.search(self.text) is not None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression that finds the number in a line; a blank of the pattern matches any run of blanks."""
        before, after = (
            f"{_BLANK}++".join(re.escape(word) for word in re.split(r"\s+", part))
            for part in _PLACE.sub("\0", self.text.strip()).split("\0")
        )
        begins = r"(?<!\w)" if before[:1].isalnum() else ""
        blanks = f"{_BLANK}*+" if before else ""
        unit = after[:1].isalnum()
        ends = after + (r"(?!\w)" if after[-1:].isalnum() else "") if unit else _ENDS + after
        return re.compile(begins + before + blanks + _NUMBER + ends, re.I)

    def values(self, text: str) -> list[float]:
        """Values in `text`: the last match of each line that has one."""
        found: list[float] = []
        last = -1  # end of the last match
        for match in self.pattern.finditer(text):
            if last >= 0 and not _LINE_ENDS.search(text, last, match.start()):
                found.pop()
            found.append(float(match[1]))
            last = match.end()
        return found


def read_metric(text: str) -> Metric:
    """Read the metric that this text describes.

    Raises:
        ValueError: The text is neither a pattern nor a name.
    """
    places = len(_PLACE.findall(text))
    if places == 1 and (_PLACE.sub("", text).strip()):
        return Metric(text)
    if not places and _NAME.fullmatch(text):
        return Metric(text)
    raise ValueError(
        "expected what the script prints, such as 'val_loss={:f}' with '{:f}' where the number stands, or a name that "
        f"it gives to ecoshare.report(), got {quoted(text)}"
    )


MAX_TRIALS: Final = 100_000
_NUMBER_DIGITS: Final = 4
LONGEST_NUMBER: Final = len(f".{MAX_TRIALS - 1}")
"""Most characters that a trial's name adds to the name of its sweep."""

_BRACES = re.compile(r"\{([\w.-]+)\}")
_SEED = re.compile(r"(^|[_.-])seed$")
"""Name of a seed, in lower case, such as `seed` or `data-seed`."""

_VALUE_NAME = re.compile(r"[^\W\d][\w.-]*")
_RANGES: Final = {
    "uniform": (False, False),
    "log": (True, False),
    "int": (False, True),
    "log_int": (True, True),
}
"""For each key of a range: whether it is logarithmic, and whether it holds whole numbers."""

_CHOICE_SCHEMA: Final[dict[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "items": {"type": ["string", "number", "boolean", "null"]},
}
_RANGE_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
    "properties": {
        key: {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2} for key in _RANGES
    },
}


def _read_choice(value: object) -> Choice:
    if isinstance(value, Choice):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"expected a list such as [0.1, 0.01], got {quoted(value)}")
    if not all(isinstance(word, str | int | float) for word in value):
        raise ValueError("expected a list of words or numbers")
    return Choice(tuple(str(word) for word in value))


def _read_dimension(value: object) -> Choice | Range:
    if isinstance(value, Choice | Range):
        return value
    if isinstance(value, list | tuple):
        return _read_choice(value)
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _RANGES:
        raise ValueError(
            "expected a list of choices, or one of {uniform: [0, 1]}, {log: [1e-4, 0.1]}, {int: [1, 8]} and "
            f"{{log_int: [16, 256]}}, got {quoted(value)}"
        )
    ((kind, bounds),) = value.items()
    log, whole = _RANGES[kind]
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        raise ValueError(f"expected the lowest and the highest value, such as {kind}: [1, 8], got {quoted(bounds)}")
    low, high = (_read_number(bound, whole) for bound in bounds)
    if low > high:
        raise ValueError(f"the lowest value, {low:g}, is above the highest, {high:g}")
    if log and low <= 0:
        raise ValueError(f"a logarithmic range begins above 0, not at {low:g}")
    return Range(low, high, log, whole)


def _read_number(value: object, whole: bool = False) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (whole and number != int(number)):
        raise ValueError(f"expected a {'whole ' if whole else ''}number, got {quoted(value)}")
    return number


def _read_space(value: object) -> object:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"expected a mapping of names and values such as {{lr: [0.1, 0.01]}}, got {quoted(value)}")
    for name in value:
        if not isinstance(name, str) or not _VALUE_NAME.fullmatch(name):
            raise ValueError(f"expected a name such as lr or weight-decay, got {quoted(name)}")
    return value


def _read_metric(value: object) -> Metric:
    if isinstance(value, Metric):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected text such as 'val_loss={{:f}}', got {quoted(value)}")
    return read_metric(value)


def _one_of(*words: str) -> Callable[[object], object]:
    def read(value: object) -> object:
        if value not in words:
            raise ValueError(f"expected {' or '.join(map(repr, words))}, got {quoted(value)}")
        return value

    return read


def _read_stop(value: object) -> object:
    return {"rule": value} if isinstance(value, str) else value


def _optuna_has(kind: str) -> Callable[[object], object]:
    def read(value: object) -> object:
        options: object = {}
        if isinstance(value, dict) and len(value) == 1:
            ((value, options),) = value.items()
            options = {} if options is None else options
        if not isinstance(value, str) or not isinstance(options, dict):
            raise ValueError(
                f"expected a name of optuna.{kind}, or one with options such as {{TPESampler: {{multivariate: true}}}},"
                f" got {quoted(value)}"
            )
        if find_spec("optuna") is not None:  # without Optuna, the run says what to install
            from ecoshare.jobs import with_optuna

            with_optuna.check(kind, value)
        return value, {name: _plain(option) for name, option in options.items()}

    return read


def _plain(word: object) -> object:
    """Python value of an option; the words of a job file are all text."""
    if not isinstance(word, str):
        return word
    for known, value in (("true", True), ("false", False), ("null", None)):
        if word.lower() == known:
            return value
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


Choices = Annotated[Choice, BeforeValidator(_read_choice), WithJsonSchema(_CHOICE_SCHEMA)]
Values = Annotated[
    Choice | Range, BeforeValidator(_read_dimension), WithJsonSchema({"anyOf": [_CHOICE_SCHEMA, _RANGE_SCHEMA]})
]
GridSpace = Annotated[dict[str, Choices], BeforeValidator(_read_space)]
Space = Annotated[dict[str, Values], BeforeValidator(_read_space)]
_NAMED_SCHEMA: Final[dict[str, Any]] = {"anyOf": [{"type": "string"}, {"type": "object", "maxProperties": 1}]}
Named = tuple[str, dict[str, Any]]


class StopConfig(_Model):
    """Early stopping: the rule that ends trials before their last iteration."""

    rule: Annotated[Literal["asha", "median", "halving"], BeforeValidator(_one_of("asha", "median", "halving"))] = (
        Field(
            description=(
                "`asha`: the best configurations of each rung go on, by means over seeds; `median`: trials better than "
                "half of the others go on; `halving`: trials pause at each rung until all others are there, and the "
                "best configurations go on. They must be `preemptible`."
            )
        )
    )
    grace: fields.PositiveInteger = Field(
        default=1, description="Values that each trial reports before it can be ended."
    )
    reduction: Annotated[fields.PositiveInteger, Field(ge=2, le=100)] = Field(
        default=3,
        description=(
            "For `asha` and `halving`: one configuration of this many goes on to the next rung, which is this many "
            "times as long."
        ),
    )
    steps: fields.PositiveInteger | None = Field(
        default=None,
        description="For `halving`: values that a whole trial reports. With `iterations`, `fluid` knows the next rung.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.steps is not None and self.rule != "halving":
            raise ValueError("'steps' is for the rule 'halving'")
        return self


class Optuna(_Model):
    """A sweep with trials that Optuna chooses."""

    space: Space = Field(description="Varied values: a list of choices or a range under each name.")
    sampler: Annotated[Named, BeforeValidator(_optuna_has("samplers")), WithJsonSchema(_NAMED_SCHEMA)] = Field(
        default=("TPESampler", {}), description="Sampler of optuna.samplers, alone or with its options."
    )
    pruner: Annotated[Named, BeforeValidator(_optuna_has("pruners")), WithJsonSchema(_NAMED_SCHEMA)] | None = Field(
        default=None, description="Pruner of optuna.pruners, alone or with its options; by default no trial ends early."
    )


class Sweep(_Model):
    """Many trials of one script, which differ in some values.

    A value replaces `{name}` in `args` and `env`. A value with a name that appears in neither is added to the arguments
    as `--name=value`.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["grid"]}, {"required": ["random"]}, {"required": ["optuna"]}]}
    )

    grid: GridSpace | None = Field(default=None, description="Every combination of the values under these names.")
    random: Space | None = Field(
        default=None, description="Independent draws: a list of choices or a range under each name."
    )
    optuna: Optuna | None = Field(default=None, description="Trials that a sampler of Optuna chooses.")
    trials: Annotated[fields.PositiveInteger, Field(le=MAX_TRIALS)] | None = Field(
        default=None, description="Number of trials; by default every combination of a grid."
    )
    seed: fields.AnyInteger = Field(default=0, description="Seed of the random draws.")
    metric: Annotated[Metric, BeforeValidator(_read_metric), WithJsonSchema({"type": "string"})] | None = Field(
        default=None,
        description=(
            "Metric of a trial. `val_loss={:f}`: a number in the output of the script; `val_loss`: a value that it "
            "gives to ecoshare.report()."
        ),
    )
    goal: Annotated[Literal["minimize", "maximize"], BeforeValidator(_one_of("minimize", "maximize"))] = Field(
        default="minimize", description="Direction in which the metric gets better."
    )
    target: Annotated[float, BeforeValidator(_read_number)] | None = Field(
        default=None,
        description="Target value of the metric; the report gives time and joules until a trial reached it.",
    )
    stop: Annotated[StopConfig, BeforeValidator(_read_stop)] | None = Field(
        default=None, description="Early stopping: the rule that ends trials with bad values of the metric."
    )
    parallel: fields.PositiveInteger | None = Field(
        default=None, description="Largest number of trials at once; by default as many as there is room for."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        problem = self._problem()
        if problem:
            raise ValueError(problem)
        return self

    def _problem(self) -> str:
        ways = [name for name in ("grid", "random", "optuna") if getattr(self, name) is not None]
        if len(ways) != 1:
            return f"a sweep has one of 'grid', 'random' and 'optuna'{', not ' + ' and '.join(ways) if ways else ''}"
        if self.trials is None and self.grid is None:
            return f"the key 'trials' is missing: how many of {ways[0]!r}?"
        if self.count > MAX_TRIALS:
            return f"a grid of {self.count:,} trials; at most {MAX_TRIALS:,}, or give 'trials'"
        needs = [key for key in ("optuna", "stop", "target") if getattr(self, key) is not None]
        if self.metric is None and needs:
            return f"the key 'metric' is missing: {needs[0]!r} goes by it"
        if self.optuna is not None and self.optuna.pruner is not None and self.stop is not None:
            return "a sweep has 'stop' or a pruner of optuna, not both"
        return ""

    @property
    def space(self) -> dict[str, Any]:
        """Choice or range of each varied value, by name."""
        if self.optuna is not None:
            return dict(self.optuna.space)
        return dict(self.grid or self.random or {})

    @property
    def replicates(self) -> tuple[str, ...]:
        """Names of the values that only tell repetitions of one configuration apart: seeds, if there are several."""
        return tuple(
            name
            for name, values in self.space.items()
            if _SEED.search(name.lower()) and not (isinstance(values, Choice) and len(values.words) == 1)
        )

    @property
    def count(self) -> int:
        """Number of trials of the sweep."""
        whole = math.prod(len(choice.words) for choice in self.grid.values()) if self.grid is not None else math.inf
        return int(min(whole, self.trials if self.trials is not None else math.inf))


def trial_name(sweep: str, number: int, count: int) -> str:
    """Name of a trial: the name of its sweep and the trial's number, counted from 0."""
    return f"{sweep}.{number:0{max(_NUMBER_DIGITS, len(str(count - 1)))}d}"


def sweep_of(name: str) -> str:
    """Name of the sweep that a trial of this name belongs to; empty if it is no trial's name."""
    found = re.fullmatch(rf"(.+)\.\d{{{_NUMBER_DIGITS},}}", name)
    return found[1] if found is not None else ""


def trial_number(name: str) -> int:
    """Number in a trial's name."""
    return int(name.rpartition(".")[2])


def filled(text: str, values: dict[str, str]) -> str:
    """The text with each `{name}` replaced by the value of that name; other braces stay."""
    return _BRACES.sub(lambda match: values.get(match[1], match[0]), text)


def names_in(text: str) -> set[str]:
    """Names that stand in braces in a text."""
    return set(_BRACES.findall(text))
