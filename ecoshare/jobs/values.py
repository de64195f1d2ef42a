"""Convert a document to plain data for the schema."""

from __future__ import annotations

from typing import Final

from ecoshare.jobs.nodes import Node, Scalar, Sequence

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
