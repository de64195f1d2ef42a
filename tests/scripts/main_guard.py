"""The script starts its loader's workers inside `main()` behind the `__main__` guard.

Under `spawn` each worker imports this file again as `__mp_main__`: that works only if `__main__` has its
file and no spec, and if `__name__` is "__main__" in the job alone.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.arange(4, dtype=torch.float32) * 0.1 + index / 64
        return x, x.square().sum(dim=0, keepdim=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", choices=["fork", "spawn"], default="fork")
    args = parser.parse_args()
    torch.manual_seed(3)
    options = {"num_workers": 2, "multiprocessing_context": args.context}
    loader = DataLoader(Squares(), batch_size=8, shuffle=True, **options)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss:.9g}")


if __name__ == "__main__":
    main()
