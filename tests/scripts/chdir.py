"""The script changes its current folder in mid-run, then imports a module beside the script.

A relative path that the runner keeps, in sys.path or __file__, leads nowhere after that.
"""

import os
import tempfile
from pathlib import Path

import torch

torch.manual_seed(49)
x = torch.randn(14, 3)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
start = Path.cwd()
factor = 1.0

with tempfile.TemporaryDirectory(dir=".") as folder:
    for step in range(14):
        loss = factor * (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss:.9g}")
        if step == 5:
            os.chdir(folder)
            Path("note.txt").write_text("written after chdir")
        if step == 8:
            from chdir_late import FACTOR

            factor = FACTOR
            print(Path("note.txt").read_text(), [path.name for path in Path().iterdir()])
    os.chdir(start)
print("script", Path(__file__).is_file())
