"""The model of job b: deep. Job a has a file of the same name."""

from torch import nn

NAME = "b: deep"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).relu()
        return self.head(x)
