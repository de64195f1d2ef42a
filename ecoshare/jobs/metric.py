"""How a trial of a sweep says how well it does: a pattern of what it prints, or a name that it reports under."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ecoshare.jobs.quoted import quoted

_PLACE = re.compile(r"\{(:[a-z])?\}")
_BLANK = r"[^\S\r\n]"
_NUMBER = r"(?a:([-+]?(?<!\d)(?:\d++(?:\.\d*+)?(?:e[-+]?\d++)?|\.\d++(?:e[-+]?\d++)?|inf(?:inity)?|nan)))"
"""In ASCII, as `float` wants it: without case, `i` is also U+0131. Digits are taken together or not at all, so that the
time for a line grows as its length, whatever a script prints."""

_ENDS = r"(?!\.*+\w)(?!,\d{3}(?!\d))"
"""Where nothing more of a number can follow: `1x`, `1.2.3` and `1,234` are none."""

_LINE_ENDS = re.compile(r"[\r\n]")
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
            f"{_BLANK}++".join(re.escape(word) for word in re.split(r"\s+", part))
            for part in _PLACE.sub("\0", self.text.strip()).split("\0")
        )
        begins = r"(?<!\w)" if before[:1].isalnum() else ""
        blanks = f"{_BLANK}*+" if before else ""
        unit = after[:1].isalnum()
        ends = after + (r"(?!\w)" if after[-1:].isalnum() else "") if unit else _ENDS + after
        return re.compile(begins + before + blanks + _NUMBER + ends, re.I)

    def values(self, text: str) -> list[float]:
        """For each line that has numbers where the pattern says, the last of them."""
        found: list[float] = []
        last = -1  # where the last match ended
        for match in self.pattern.finditer(text):
            if last >= 0 and not _LINE_ENDS.search(text, last, match.start()):
                found.pop()
            found.append(float(match[1]))
            last = match.end()
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
