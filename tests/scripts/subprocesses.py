"""The script runs this interpreter and a shell command as subprocesses.

The path of the interpreter, the environment, stdout and the children's exit codes must stay usable.
"""

import os
import subprocess
import sys

import torch

os.environ["SUBPROCESS_GREETING"] = "hello from the parent"
code = "import os, sys; print(os.environ['SUBPROCESS_GREETING'], sys.argv[1:])"
done = subprocess.run([sys.executable, "-c", code, "x", "y"], capture_output=True, text=True, check=True)
print("captured", done.stdout.strip())

torch.manual_seed(38)
x = torch.randn(10, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}", flush=True)
    if step == 4:
        print("shell", subprocess.run(["sh", "-c", "echo inherited stdout; exit 7"], check=False).returncode)
