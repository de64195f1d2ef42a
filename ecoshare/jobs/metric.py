"""How a trial of a sweep says how well it does: a pattern of what it prints, or a name that it reports under."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ecoshare.jobs.quoted import quoted

_PLACE = re.compile(r"\{(:[a-z])?\}")
_NUMBER = r"([-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf(?:inity)?|nan))"
_ENDS = r"(?![\w.]*\w)(?!,\d{3}(?!\d))"
"""Where nothing more of a number can follow: `1x`, `1.2.3` and `1,234` are none."""
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        text: As in the job file: `val_loss={:f}` for what is printed, `val_loss` for `ecoshare.report(val_loss=...)`.
    """

    text: str

    @property
    def is_printed(self) -> bool:
        """Whether it is read from what the script prints."""
        return _PLACE.search(self.text) is not None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds the number, in any notation, in a line; blanks of the pattern stand for any blanks."""
        before, after = (
            r"\s+".join(re.escape(word) for word in re.split(r"\s+", part))
            for part in _PLACE.sub("\0", self.text).split("\0")
        )
        begins = r"(?<!\w)" if before[:1].isalnum() else ""
        unit = after[:1].isalnum()
        ends = after + (r"(?!\w)" if after[-1:].isalnum() else "") if unit else _ENDS + after
        return re.compile(begins + before + r"\s*" + _NUMBER + ends, re.I)

    def find(self, line: str) -> float | None:
        """The last number in a line that stands where the pattern says; None where there is none."""
        found = None
        for match in self.pattern.finditer(line):
            found = float(match[1])
        return found


def read(text: str) -> Metric:
    """The metric of this text.

    Raises:
        ValueError: It is neither a pattern nor a name.
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
