"""Drivers that do random hostile things to ecoshare, and count the rounds that it survives.

::

    python -m scripts.fuzz.signals       signals to any process of a run
    python -m scripts.fuzz.faulty_jobs   faulty jobs beside neighbours
    python -m scripts.fuzz.job_files     damaged job files
    python -m scripts.fuzz.run_folders   damaged run folders
    python -m scripts.fuzz.traces        damaged traces and tables of the simulator
    python -m scripts.fuzz.stores        damaged profiles, and journals of settings
    python -m scripts.fuzz.environments  environments, limits and streams of the command
    python -m scripts.fuzz.users         files of another user in places that all users share

Each takes `--rounds N`, `--seed S`, `--only ROUND` and `--json FILE`, and exits with 1 if a round was lost.
`rounds.py` has their common parts, `damage.py` the damage, and `commands.py` the checks of a command.
"""
