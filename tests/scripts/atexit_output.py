"""The script prints after its last line.

First a thread that outlives main, then an atexit handler. Both belong to the job's output. A runner that
leaves with os._exit, or that takes the end of the script for the end of the job, loses them.
"""

import atexit
import threading

import torch

torch.manual_seed(36)
x = torch.randn(12, 3)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def report():
    threading.main_thread().join()
    print("thread: main is over,", f"{model.weight.sum():.9g}")


atexit.register(lambda: print("atexit:", f"{model.bias.sum():.9g}"))
threading.Thread(target=report).start()
for step in range(12):
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
print("main: done")
