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

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import yaml

from ecoshare.errors import Mistake
from ecoshare.jobs.nodes import Mapping, Node, Scalar, Sequence, path_text
from ecoshare.jobs.source import Source
from ecoshare.jobs.syntax import MAX_DEPTH, syntax_mistake

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
