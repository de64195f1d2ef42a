"""The script imports a module that does not exist.

One job fails with the usual traceback and exit code 1, and no other.
"""

import torch

print("threads", torch.get_num_threads() > 0)

import a_module_that_is_not_installed  # noqa: E402

print(a_module_that_is_not_installed)
