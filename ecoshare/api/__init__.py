"""Python API: run, simulate, profile and tune jobs from Python. The command line is a thin layer over it.

::

    RunRequest      ──► run()      ──► RunResult          plan() ──► Plan, resume() goes on with a run
    ProfileRequest  ──► profile()  ──► ProfileResult
    TuneRequest     ──► tune()     ──► TuneResult         replay() searches in a measured table
    SimulateRequest ──► simulate() ──► SimulateResult     compare() ──► Comparison of policies on many traces

A request is a frozen dataclass with defaults. The fields have the names of the command's options. Each function also
takes the fields as keyword arguments. No function prints: notes and progress go to the objects that the request holds.
Errors are those of `ecoshare.errors`. A job that fails is no error: `RunResult.check` raises what
the command turns into its exit code.

`import ecoshare` loads none of this: `ecoshare.run` is imported at its first use, since jobs import ecoshare, too.
"""
