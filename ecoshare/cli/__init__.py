"""The command line: one file for each command, with its arguments and its output.

::

    entry.main ──► app.app ──► run.py, tune.py, simulate.py, ...      arguments, output
                                     │ imports on use
                                     ▼
                               runtime, reporting, jobs, ...           the work

`entry.py` turns errors into exit codes. `options.py` has the options that several commands share, and `named_runs.py`
says which run and which job the words of a command name.
"""

from ecoshare.cli.app import app
from ecoshare.cli.entry import main

__all__ = ["app", "main"]
