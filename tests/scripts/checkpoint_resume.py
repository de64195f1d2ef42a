"""The script writes a checkpoint every five steps, resumes with --resume, and on SIGTERM saves one more and exits 0.

Killed and resumed, it prints for each step the loss that an unbroken run prints. A job that waits for its
turn when SIGTERM comes must still reach the end of its step.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--step-ms", type=float, default=20.0)
parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint_resume.pt"))
parser.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
args = parser.parse_args()

torch.manual_seed(51)
model = nn.Sequential(nn.Linear(6, 18), nn.ReLU(), nn.Linear(18, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
first = 0
if args.resume and args.checkpoint.exists():
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["steps"]
    print("resumed at", first, flush=True)


def save(steps):
    written = args.checkpoint.with_suffix(".new")
    torch.save({"steps": steps, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, written)
    written.replace(args.checkpoint)


stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
for step in range(first, args.steps):
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(step))
    loss = (model(x).squeeze(1) - x.amax(dim=1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}", flush=True)
    time.sleep(args.step_ms / 1000)
    if stopped or (step + 1) % 5 == 0:
        save(step + 1)
    if stopped:
        print("stopped after", step + 1)
        sys.exit(0)
print("finished")
