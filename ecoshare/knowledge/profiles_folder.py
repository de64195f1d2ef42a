"""Folder of the profiles, and the folders in it.

::

    profiles/              one file for each class       profile_store.py
      beside/              times beside other classes    colocation_store.py
      calibration/         times by device               calibration_store.py
      gangs/               times by number of machines   gang_time_store.py
      iterations/          counts of iterations          iteration_store.py
      tuned/               measured settings             tuning_store.py

The module is light: a command that only asks whether there are such files loads no store.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from ecoshare.errors import UnfitEnvironment

BESIDE = "beside"
CALIBRATION = "calibration"
GANGS = "gangs"
ITERATIONS = "iterations"
TUNED = "tuned"

HINT = "choose another folder with --profiles"
"""Remedy if a folder cannot be used."""


def default_folder() -> Path:
    """Folder in `$ECOSHARE_PROFILES`, else `ecoshare/profiles` in the user's data folder.

    Raises:
        UnfitEnvironment: The user has no home folder.
    """
    if own := os.environ.get("ECOSHARE_PROFILES"):
        return Path(own)
    try:
        return platformdirs.user_data_path("ecoshare") / "profiles"
    except RuntimeError as error:
        raise UnfitEnvironment("there is no home folder to keep profiles in", HINT) from error
