"""Starts one of ecoshare's own programs in a new interpreter, without changing the interpreter's import path.

The interpreter of a job may be another than ours, without ecoshare on its path, and nothing of ours must be put on that
path. So ecoshare is loaded from its own folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

ADDED_ENVIRONMENT = "ECOSHARE_ADDED"
"""Variable that lists the variables that the controller added to the server's environment, joined by commas.

Libraries read those variables while they load. A forked job does not see them; a fresh interpreter needs them.
"""

_BOOT = """
import sys
bare = frozenset(sys.modules)
if sys.path and sys.path[0] == "": del sys.path[0]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("ecoshare", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["ecoshare"] = module = module_from_spec(spec)
spec.loader.exec_module(module)
module._bare = bare
from importlib import import_module
import_module(sys.argv[2]).main(sys.argv[3:])
"""


def command(module: str, *args: str, python: str = sys.executable) -> list[str]:
    """Command line that runs `main(args)` of one of ecoshare's modules."""
    return [python, "-c", _BOOT, str(Path(__file__).parents[1]), module, *args]
