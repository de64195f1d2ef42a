"""A background thread counts and runs a module of its own while the main thread trains.

Nesting is counted per thread.
"""

import threading

import torch

torch.manual_seed(37)
x = torch.randn(12, 6)
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
identity = torch.nn.Identity()
started, stop = threading.Event(), threading.Event()
counter = 0


def count():
    global counter
    while not stop.wait(0.0005):
        counter += int(identity(1))
        started.set()


thread = threading.Thread(target=count)
thread.start()
started.wait()
for step in range(15):
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
stop.set()
thread.join()
print("counted", counter > 0)
