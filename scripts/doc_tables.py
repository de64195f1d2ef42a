"""Writes the tables of pages that are made from the code. `scripts/docs` calls it, and a test holds the pages to it.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import get_args, get_type_hints

from ecoshare.option_fields import default_of, flag_of, form_of, options_of
from ecoshare.run_options import RunOptions

ROOT = Path(__file__).parents[1]
PAGES = ("docs/commands.md",)
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def options() -> Iterable[tuple[str, ...]]:
    """Rows of the options of a run, under their heads."""
    yield "option", "means"
    hints = get_type_hints(RunOptions)
    for name, each in options_of(RunOptions).items():
        form, default, types = form_of(each), default_of(each), get_args(hints[name])
        is_switch = isinstance(default, bool) or bool in types
        words = "" if is_switch else " " + (form.form or ("N" if int in types else "NUMBER"))
        shown = "" if is_switch or default is None or default == {} else f" Default: {default}."
        if flag_of(each) != f"--{name.replace('_', '-')}":
            shown += f" From Python: `{name}{'=False' if default is True else ''}`."
        yield f"`{flag_of(each)}{words}`", form.help + shown


TABLES: dict[str, Callable[[], Iterable[tuple[str, ...]]]] = {"options": options}


def _table(name: str) -> str:
    head, *rows = TABLES[name]()
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(each.replace("|", "\\|") for each in row) + " |\n" for row in lines)


def with_tables(text: str) -> str:
    """Text of a page with its tables made anew."""
    return _TABLE.sub(lambda found: found[1] + _table(found[2]) + found[3], text)


def main() -> None:
    """Write the pages."""
    for page in PAGES:
        path = ROOT / page
        path.write_text(with_tables(path.read_text()))


if __name__ == "__main__":
    main()
