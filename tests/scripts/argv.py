"""The script parses its arguments and inspects itself.

All of `sys.argv`, `__name__`, `__file__` and `__main__` must be those of a plain run. Arguments with spaces,
empty ones and ones after `--` must arrive unchanged; pickle and inspect need `sys.modules["__main__"]` to be
this module.
"""

import argparse
import sys
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--tag", default="")
parser.add_argument("rest", nargs="*")
args = parser.parse_args()

print("arguments", sys.argv[1:])
print("script", Path(sys.argv[0]).name, parser.prog)
print("rest", args.rest, "tag", repr(args.tag))
print("name", __name__, "file", Path(__file__).name, "spec", __spec__, "package", __package__)
print("main", sys.modules["__main__"].__dict__ is globals())
print("beside", (Path(sys.path[0]) / "argv.py").is_file())

torch.manual_seed(2)
x = torch.randn(16, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for step in range(args.steps):
    loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
