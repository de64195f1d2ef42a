"""Metric of a sweep: a pattern for the lines that a trial prints, or a name that the trial reports."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ecoshare.jobs.quoted import quoted

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


def read(text: str) -> Metric:
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
