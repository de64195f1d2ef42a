"""Recorded runs of all kinds, and what the commands told of them when they were recorded.

Each archive has a run folder (`run/`) and the outputs (`told/`). A change of the structure leaves both as they are. One
that changes what users see writes the outputs anew, and the new ones are read before they are committed::

    python -m tests.golden.archive add NAME RUN      record a run folder
    python -m tests.golden.archive tell [NAME ...]   write the outputs anew
"""
