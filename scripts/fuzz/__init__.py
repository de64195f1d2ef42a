"""Drivers that do hostile things at random and count what ecoshare survives.

::

    python -m scripts.fuzz.signals       signals to any process of a run
    python -m scripts.fuzz.faulty_jobs   faulty jobs beside neighbours
    python -m scripts.fuzz.job_files     damaged job files
    python -m scripts.fuzz.run_folders   damaged run folders
    python -m scripts.fuzz.traces        damaged traces and tables of the simulator
    python -m scripts.fuzz.stores        damaged profiles, and journals of settings
    python -m scripts.fuzz.environments  environments, limits and streams of the command
    python -m scripts.fuzz.users         what another user leaves in places that all users share

Each takes `--rounds N`, `--seed S`, `--only ROUND` and `--json FILE`, and leaves with 1 if a round was lost.
`rounds.py` has what they share, `damage.py` the damage, and `commands.py` what is expected of a command.
"""
