"""What a document says, as plain data for the schema."""

from __future__ import annotations

from typing import Final

from ecoshare.jobs.nodes import Node, Scalar, Sequence

# In the lists and mappings under these keys, `null` and `~` are words for a program, not for us.
_WORDS_FOR_THE_JOB: Final = frozenset({"args", "resume_args", "on_end", "env", "grid", "random", "space"})
_NULLS: Final = frozenset({"~", "null", "Null", "NULL"})


def plain_values(node: Node, for_the_job: bool = False) -> object:
    """Dictionaries, lists, text as it was written, and None for what was left empty.

    `null` and `~` are None as well, except in what a job is given: `args: [~, null]` are two words, while
    `args: null` is no list.
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
