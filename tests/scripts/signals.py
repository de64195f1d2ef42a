"""The script installs a handler for SIGUSR1 and sends itself that signal.

Handlers and masks must be the job's, as in a plain run.
"""

import os
import signal

import torch

received = []


def handle(number, frame):
    received.append(signal.Signals(number).name)
    print("handled", signal.Signals(number).name)


print("SIGTERM default", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
print("SIGUSR1 before", signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)
print("blocked", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
signal.signal(signal.SIGUSR1, handle)

torch.manual_seed(10)
x = torch.randn(20, 3)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(12):
    loss = (model(x) - x.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if step in (3, 8):
        os.kill(os.getpid(), signal.SIGUSR1)
    optimizer.step()
    print(step, f"{loss:.9g}")
print("received", received)
