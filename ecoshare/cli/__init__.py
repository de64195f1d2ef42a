"""The command line: one file for each command, with its arguments and its output.

::

    entry.main ──► app.app ──► run.py, tune.py, simulate.py, ...      arguments, output
                                     │ imports on use
                                     ▼
                               runtime, reporting, jobs, ...           the work

`entry.py` turns errors into exit codes. `options.py` has the options that several commands share, and `named_runs.py`
says which run and which job the words of a command name.
"""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and end the process. The command `ecoshare` calls this function.

    Ctrl-C ends the process without a word until its commands are loaded: nothing has begun by then.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ecoshare.cli import entry

    entry.main()
