"""The script sets no seed.

Each line must differ between any two runs, or all unseeded jobs of a sweep are one and the same job.
"""

import random

import numpy as np
import torch

print("torch", torch.rand(()).item())
print("torch.seed", torch.initial_seed())
print("numpy", np.random.rand())
print("numpy.default_rng", np.random.default_rng().random())
print("random", random.random())
print("linear", torch.nn.Linear(3, 1).weight.tolist())
print("permutation", torch.randperm(1000)[:6].tolist())
