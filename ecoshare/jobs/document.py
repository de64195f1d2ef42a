"""Read a YAML document into a graph of nodes, with bounds on its size.

Reasons against `yaml.safe_load`:

- It loses the places of values.
- It converts `1e-3` to a float, `007` to the number 7 and `yes` to a truth value. A script must get the text that
  the user wrote.
- It accepts duplicate keys, and aliases to a value that contains them.
- Nine lines of aliases to aliases unfold into a billion values.

`yaml.compose` keeps places, but its recursion depth is not bounded and each node takes over half a kilobyte. This
module builds the graph from parser events, which costs no more. Reading stops at the first event that breaks a bound.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import yaml

from ecoshare.base import documents
from ecoshare.errors import Mistake, UsageError

MAX_FILE_BYTES: Final = 32 * 2**20  # ten thousand jobs with every key set take 4 MB

_BYTE_ORDER_MARK: Final = "\ufeff"
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_FOREIGN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


class Source:
    """Text of a job file that knows the line and column of each character.

    This module refuses bytes that are not UTF-8 and control characters, and gives their place. A YAML parser would
    report them less clearly. A character such as U+2028 would make YAML count lines differently from every editor.

    Attributes:
        text: The text without its byte order mark.
    """

    def __init__(self, text: str) -> None:
        self.text = text.removeprefix(_BYTE_ORDER_MARK)

    def mistake(self, index: int, where: str, what: str) -> Mistake:
        """A mistake at the character with this index; an index past the end stands for the end."""
        index = min(max(index, 0), len(self.text))
        line = bisect_right(self._line_starts, index)
        return Mistake(line, index - self._line_starts[line - 1] + 1, where, what)

    def line(self, index: int) -> int:
        """Line of the character with this index, counted from 1."""
        return self.mistake(index, "", "").line

    @cached_property
    def _line_starts(self) -> array[int]:
        # Computed only for a file with a mistake. An array saves memory: a file of empty lines has millions of lines.
        return array("L", chain((0,), (match.end() for match in _LINE_BREAK.finditer(self.text))))


def read_bytes(path: Path) -> bytes:
    """Bytes of a job file; for a file that is too large, a beginning longer than `MAX_FILE_BYTES`.

    Raises:
        UsageError: The file is missing, is a folder, or cannot be read; or its name is not valid.
    """
    try:
        return documents.read_begin(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise UsageError(f"no job file at {path}", "`ecoshare init` writes one to start from") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a job file", "name the file in it") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(f"the job file {path} cannot be read: {reason.lower()}") from None
    except ValueError:
        raise UsageError(f"{str(path)!r} cannot be the name of a file") from None


def decode(data: bytes) -> Source | Mistake:
    """Text of the bytes, or the first mistake that makes them invalid as a job file."""
    if len(data) > MAX_FILE_BYTES:
        return Mistake(1, 1, "", f"the file is larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        source = Source(data.decode())
    except UnicodeDecodeError as error:
        before = Source(data[: error.start].decode())
        hint = "; it looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        return before.mistake(len(before.text), "", f"the file is not UTF-8 text from here on{hint}; save it as UTF-8")
    foreign = _FOREIGN.search(source.text)
    if foreign is None:
        return source
    return source.mistake(foreign.start(), "", f"the character U+{ord(foreign[0]):04X} has no place in a job file")


_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(slots=True, eq=False)
class Scalar:
    """One piece of text.

    Attributes:
        text: The text as written, without quotes and with escapes replaced.
        plain: True if the source has the text without quotes.
        start: Index of the first character in the source, the anchor included.
        end: Index after the last character.
    """

    text: str
    plain: bool
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Sequence:
    """A list of nodes; `start` is the index of the first character in the source."""

    start: int
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Mapping:
    """Keys and values, including those that a merge key adds.

    Attributes:
        start: Index of the first character in the source.
        entries: Key node and value node, by the text of the key.
        merged: Value of the merge key `<<`, including the keys that `entries` overrides; None without one.
    """

    start: int
    entries: dict[str, tuple[Scalar, Node]] = field(default_factory=dict)
    merged: Node | None = None


Node = Scalar | Sequence | Mapping


def path_text(steps: Iterable[str | int]) -> str:
    """Path to a value as messages show it, such as `jobs[0].timeout`.

    The path ends before a key that is not a plain name, since such a key may be a misplaced value.
    """
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            path += f".{step}" if path else step
        else:
            break
    return path


MAX_DEPTH: Final = 16
"""Most levels of a document; a job file needs four."""


class _Complaint(NamedTuple):
    """One error of the parser, recognised by parts of its text; libyaml and PyYAML use different texts.

    `at_start` is true if the message should point to the beginning of the construct: the parser notices an
    unclosed quote only at the end of the file. `{line}` stands for the line where the construct begins.
    """

    context: str
    problem: str
    what: str
    at_start: bool = False


_ESCAPE: Final = "an unknown escape after '\\': double the backslash, or use single quotes"
_INDICATOR: Final = "{} in YAML; put a value that begins so in quotes"
_DIRECTIVE: Final = "a line that begins with '%' is a YAML directive; remove it"
_OPEN_QUOTE: Final = "this quote is never closed"

# The first match wins. No message quotes the file: a value of `env:` may stand at the place of the mistake.
_COMPLAINTS: Final = (
    # libyaml has a limit of its own since PyYAML 6.0.4, and reads ahead so far that it meets it first.
    _Complaint("", "nesting depth", f"nested deeper than {MAX_DEPTH} levels"),
    _Complaint("", "tab character", "a tab; YAML indents with spaces only"),
    _Complaint("", "cannot start any token", "a value cannot begin with '@', '`' or '%'; put it in quotes"),
    _Complaint(
        "",
        "apping values are not allowed",
        "no ':' can stand here: check the indentation, and put a value that holds ': ' in quotes",
    ),
    _Complaint("", "equence entries are not allowed", "a list item '- ' must begin a line of its own"),
    _Complaint("quoted", "end of stream", _OPEN_QUOTE, at_start=True),
    _Complaint("quoted", "unexpected document", _OPEN_QUOTE, at_start=True),
    _Complaint("quoted", "escape", _ESCAPE),
    _Complaint("quoted", "expected", _ESCAPE),
    _Complaint("simple key", "':'", "expected ':' and a value after this key", at_start=True),
    _Complaint("flow sequence", "',' or ']'", "expected ',' or ']' in the list that begins on line {line}"),
    _Complaint("flow mapping", "',' or '}'", "expected ',' or '}' in the mapping that begins on line {line}"),
    _Complaint(
        "block mapping",
        "expected",
        "expected a key of the mapping that begins on line {line}: check the indentation and the quotes",
    ),
    _Complaint(
        "block collection",
        "expected",
        "expected '- ' as in the list that begins on line {line}: check the indentation",
    ),
    _Complaint("block scalar", "", _INDICATOR.format("'|' or '>' begins text of several lines")),
    _Complaint("alias", "", _INDICATOR.format("'*' begins an alias"), at_start=True),
    _Complaint("anchor", "", _INDICATOR.format("'&' begins an anchor"), at_start=True),
    _Complaint("tag", "", _INDICATOR.format("'!' begins a tag"), at_start=True),
    _Complaint("", "undefined tag", _INDICATOR.format("'!' begins a tag"), at_start=True),
    _Complaint("directive", "", _DIRECTIVE, at_start=True),
    _Complaint("", "%", _DIRECTIVE),
    _Complaint("", "YAML", _DIRECTIVE),
    _Complaint("", "document start", "this does not belong to what stands before it; check the indentation"),
    _Complaint("", "node content", "expected a value here"),
)


def syntax_mistake(error: yaml.YAMLError, source: Source) -> Mistake:
    """The mistake that made the parser stop."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return source.mistake(0, "", "this is not YAML")
    index = error.problem_mark.index
    start = error.context_mark.index if error.context_mark is not None else index
    context, problem = str(error.context or ""), str(error.problem or "")
    if source.text[index : index + 1] == "\t":
        context, problem = "", "tab character"
    elif "flow" in context and index >= len(source.text):
        return source.mistake(start, "", "this bracket is never closed")
    for complaint in _COMPLAINTS:
        if complaint.context in context and complaint.problem in problem:
            what = complaint.what.replace("{line}", str(source.line(start)))
            return source.mistake(start if complaint.at_start else index, "", what)
    return source.mistake(index, "", "this is not YAML; check the indentation and the quotes")


MAX_VALUES: Final = 1_000_000  # with aliases unfolded; a hundred for each of ten thousand jobs
MAX_ITEMS: Final = 10_000  # entries of one list or mapping: jobs, arguments, environment
MAX_MISTAKES: Final = 1_000  # no user reads more, and each takes memory

# Without libyaml, parsing gives the same events but is several times slower.
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNUSABLE_IN_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """Result of reading a job file.

    Attributes:
        source: The text of the document.
        root: Root node; None if reading had to stop, and then there is at least one mistake.
        mistakes: Mistakes in the YAML itself, apart from its meaning as a job file.
    """

    source: Source
    root: Node | None
    mistakes: tuple[Mistake, ...]


def read_document(source: Source) -> Document:
    """Read the single YAML document in the source.

    Time and memory are bounded for any text, see `MAX_VALUES` and `MAX_DEPTH`.
    """
    composer = _Composer(source)
    try:
        for event in _events(source):
            composer.take(event)
    except _Stop as stop:
        return Document(source, None, (*composer.mistakes, stop.mistake))
    if composer.root is None:
        return Document(source, None, (source.mistake(0, "", "the file is empty; `ecoshare init` writes one"),))
    return Document(source, composer.root, tuple(composer.mistakes))


class _Stop(Exception):
    """Raised to stop reading; it never leaves this module."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(mistake.what)
        self.mistake = mistake


def _events(source: Source) -> Iterator[yaml.Event]:
    done = 0
    try:
        for event in yaml.parse(source.text, Loader=_LOADER):
            done = _end(event)
            yield event
    except yaml.YAMLError as error:
        raise _Stop(syntax_mistake(error, source)) from None
    except (ValueError, OverflowError):
        # PyYAML without libyaml calls chr() on any number in an escape.
        raise _Stop(source.mistake(done, "", "an escape after '\\' names no character")) from None


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is still open."""

    node: Sequence | Mapping
    anchor: str | None
    values_before: int
    height: int = 1
    key: Scalar | None = None  # key of the open or next value; None if the key is invalid
    expects_value: bool = False

    def step(self, child_is_open: bool) -> str | int:
        """Index or key of the open or next child; empty before a key is known."""
        if isinstance(self.node, Sequence):
            return len(self.node.items) - child_is_open
        if self.key is None or not (child_is_open or self.expects_value):
            return ""
        return self.key.text


@dataclass(frozen=True, slots=True)
class _Anchored:
    node: Node
    values: int
    height: int  # 0 for text, one more than the highest child for a list or mapping


class _Composer:
    """Builds the graph from parser events, one at a time.

    `_values` counts nodes with aliases unfolded: each alias adds the count of the node that it names. The count is
    known when an anchored node closes, so an alias that exceeds `MAX_VALUES` is refused before it is unfolded.
    """

    def __init__(self, source: Source) -> None:
        self.root: Node | None = None
        self.mistakes: list[Mistake] = []
        self._source = source
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchored | None] = {}  # None while the anchored node is open
        self._values = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """Add one event to the graph.

        Raises:
            _Stop: The event breaks a bound, or makes the rest of the document meaningless.
        """
        if isinstance(event, yaml.ScalarEvent):
            self._take_scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._take_alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(_start(event), "a second document begins here; a job file holds one")

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        index = _start(event)
        node = Scalar(event.value, not event.style, index, _end(event))
        self._refuse_tag(event)
        # Only double-quoted text has escapes, so only there can a character appear that the source does not hold.
        if event.style == '"' and _UNUSABLE_IN_TEXT.search(event.value):
            self._note(index, "no program can be given a NUL character or half a surrogate pair")
        self._count(1, index)
        self._place(node)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(node, 1, 0)

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        index = _start(event)
        if len(self._stack) == MAX_DEPTH:
            self._stop(index, f"nested deeper than {MAX_DEPTH} levels")
        node: Sequence | Mapping
        node = Sequence(index) if isinstance(event, yaml.SequenceStartEvent) else Mapping(index)
        self._refuse_tag(event)
        values_before = self._values
        self._count(1, index)
        self._place(node)
        self._stack.append(_Frame(node, event.anchor, values_before))
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def _close(self) -> None:
        frame = self._stack[-1]
        if isinstance(frame.node, Mapping) and frame.node.merged is not None:
            self._merge(frame.node, frame.node.merged)
        self._stack.pop()
        self._raise_height(frame.height + 1)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = _Anchored(frame.node, self._values - frame.values_before, frame.height)

    def _take_alias(self, event: yaml.AliasEvent) -> None:
        index = _start(event)
        # The name is not repeated: an unquoted password may begin with `*`.
        if event.anchor not in self._anchors:
            self._stop(index, "no anchor for this alias; put a value that begins with '*' in quotes")
        anchored = self._anchors[event.anchor]
        if anchored is None:
            self._stop(index, "this alias names a value that contains it")
        if len(self._stack) + anchored.height > MAX_DEPTH:
            self._stop(index, f"with this alias, nested deeper than {MAX_DEPTH} levels")
        self._count(anchored.values, index)
        self._place(anchored.node)
        self._raise_height(anchored.height + 1)

    def _place(self, node: Node) -> None:
        """Add a node to the open list or mapping as item, key or value."""
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        if isinstance(frame.node, Sequence):
            if len(frame.node.items) == MAX_ITEMS:
                self._stop(node.start, f"a list holds at most {MAX_ITEMS:,} items")
            frame.node.items.append(node)
        elif not frame.expects_value:
            frame.expects_value = True
            frame.key = node if isinstance(node, Scalar) else None
            problem = self._key_problem(frame.node, node)
            if problem:
                self._note(node.start, problem)
                frame.key = None
        else:
            frame.expects_value = False
            if frame.key is None:
                return
            if _is_merge(frame.key):
                frame.node.merged = node
            elif len(frame.node.entries) == MAX_ITEMS:
                self._stop(frame.key.start, f"a mapping holds at most {MAX_ITEMS:,} keys")
            else:
                frame.node.entries[frame.key.text] = (frame.key, node)

    def _key_problem(self, mapping: Mapping, key: Node) -> str:
        if not isinstance(key, Scalar):
            return "a key must be text, not a list or a mapping"
        if _is_merge(key) and mapping.merged is not None:
            return "only one '<<' in a mapping; '<<: [*a, *b]' merges several"
        if key.text in mapping.entries and not _is_merge(key):
            first, _ = mapping.entries[key.text]
            return f"this key is already on line {self._source.line(first.start)}"
        return ""

    def _merge(self, mapping: Mapping, merged: Node) -> None:
        for node in merged.items if isinstance(merged, Sequence) else [merged]:
            if not isinstance(node, Mapping):
                self._note(node.start, "'<<' can merge mappings only")
                continue
            for text, entry in node.entries.items():
                mapping.entries.setdefault(text, entry)

    def _raise_height(self, height: int) -> None:
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, height)

    def _count(self, values: int, index: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            self._stop(index, f"more than {MAX_VALUES:,} values up to here, aliases unfolded")

    def _refuse_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            self._note(_start(event), "'!' begins a YAML tag, which has no meaning here; remove it")

    def _note(self, index: int, what: str) -> None:
        if len(self.mistakes) == MAX_MISTAKES:
            self._stop(index, f"more mistakes follow; these are the first {MAX_MISTAKES:,}")
        self.mistakes.append(self._source.mistake(index, self._path(), what))

    def _stop(self, index: int, what: str) -> NoReturn:
        raise _Stop(self._source.mistake(index, self._path(), what))

    def _path(self) -> str:
        return path_text(frame.step(frame is not self._stack[-1]) for frame in self._stack)


def _start(event: yaml.Event) -> int:
    assert event.start_mark is not None  # both parsers always set it; only hand-made events lack it
    return event.start_mark.index


def _end(event: yaml.Event) -> int:
    assert event.end_mark is not None
    return event.end_mark.index


def _is_merge(key: Scalar) -> bool:
    return key.plain and key.text == "<<"


# In the lists and mappings under these keys, `null` and `~` are words for the job's program, not nulls.
_WORDS_FOR_THE_JOB: Final = frozenset({"args", "resume_args", "on_end", "env", "grid", "random", "space"})
_NULLS: Final = frozenset({"~", "null", "Null", "NULL"})


def plain_values(node: Node, for_the_job: bool = False) -> object:
    """Plain data of a node: dictionaries, lists, text as written, and None for an empty value.

    `null` and `~` are None, too, except in values for the job's program: `args: [~, null]` holds two words, while
    `args: null` holds no list.

    Args:
        for_the_job: True below a key with values for the job's program; `null` and `~` are then words.
    """
    if isinstance(node, Scalar):
        is_null = node.plain and (not node.text or (not for_the_job and node.text in _NULLS))
        return None if is_null else node.text
    if isinstance(node, Sequence):
        return [plain_values(item, for_the_job) for item in node.items]
    return {
        key: plain_values(value, for_the_job or (key in _WORDS_FOR_THE_JOB and not isinstance(value, Scalar)))
        for key, (_, value) in node.entries.items()
    }
