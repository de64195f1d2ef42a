"""The script leaves open objects to the end of the interpreter.

There are an object with a finaliser that prints, a generator with a `finally`, and a file that is never closed, so its
buffer is written when the interpreter destroys it. With `--hide` a module other than the script holds the object.
"""

import sys

import torch

torch.manual_seed(37)
x = torch.randn(12, 3)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Talks:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("gone:", self.name)


def numbers():
    try:
        yield 1
        yield 2
    finally:
        print("numbers: over")


log = open("at_the_end.out", "w")  # noqa: PTH123, SIM115
talks = Talks("mine")
if "--hide" in sys.argv:
    torch.hidden = Talks("hidden")
    del talks
left_over = numbers()
next(left_over)
for step in range(12):
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
    log.write(f"{step} {loss:.9g}\n")
print("main: done")
sys.exit("at the end: as it should be")
