"""The command line: a file for each command, with its arguments and what it prints.

::

    entry.main ──► commands.app ──► run.py, tune.py, simulate.py, ...      arguments, output
                                          │ imported where they are used
                                          ▼
                                    runtime, reporting, jobs, ...           the work

`entry.py` turns errors into exit codes, `options.py` has the options that several commands share.
"""

from ecoshare.cli.app import app
from ecoshare.cli.entry import main

__all__ = ["app", "main"]
