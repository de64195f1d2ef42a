"""Train a generative adversarial network on eight Gaussians in a ring (Goodfellow et al., 2014)."""

import argparse
import math
import os

import torch
import torch.nn.functional as F
from torch import nn

MODES = 8
SPREAD = 0.1


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--latent", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    # cuBLAS repeats bit for bit only with a fixed workspace; the CPU ignores this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


def mode_centres(device: torch.device) -> torch.Tensor:
    """Centres of the eight Gaussians on the unit circle, (MODES, 2)."""
    angles = torch.arange(MODES, device=device) * (2 * math.pi / MODES)
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def sample_data(count: int, centres: torch.Tensor) -> torch.Tensor:
    which = torch.randint(MODES, (count,), device=centres.device)
    return centres[which] + SPREAD * torch.randn(count, 2, device=centres.device)


def perceptron(inputs: int, outputs: int, hidden: int = 160) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, outputs),
    )


@torch.no_grad()
def score(generator: nn.Module, latent: int, centres: torch.Tensor) -> tuple[int, float]:
    """How many modes the samples reach, and which fraction lies within three standard deviations of one."""
    samples = generator(torch.randn(2000, latent, device=centres.device))
    distance, nearest = torch.cdist(samples, centres).min(dim=1)
    good = distance < 3 * SPREAD
    # A mode counts as reached from a fifth of its fair share on.
    shares = [(good & (nearest == mode)).float().mean().item() for mode in range(MODES)]
    return sum(share > 0.2 / MODES for share in shares), good.float().mean().item()


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device(args.device)

    centres = mode_centres(device)
    generator = perceptron(args.latent, 2).to(device)
    discriminator = perceptron(2, 1).to(device)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.5, 0.99))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=args.lr, betas=(0.5, 0.99))
    real_label = torch.ones(args.batch_size, 1, device=device)
    fake_label = torch.zeros(args.batch_size, 1, device=device)

    modes, good = 0, 0.0
    report_every = max(1, args.steps // 20)
    for step in range(1, args.steps + 1):
        # The discriminator learns to tell data from samples.
        data = sample_data(args.batch_size, centres)
        samples = generator(torch.randn(args.batch_size, args.latent, device=device)).detach()
        loss_d = F.binary_cross_entropy_with_logits(discriminator(data), real_label)
        loss_d = loss_d + F.binary_cross_entropy_with_logits(discriminator(samples), fake_label)
        optimizer_d.zero_grad()
        loss_d.backward()
        optimizer_d.step()

        # The generator learns to be taken for data.
        samples = generator(torch.randn(args.batch_size, args.latent, device=device))
        loss_g = F.binary_cross_entropy_with_logits(discriminator(samples), real_label)
        optimizer_g.zero_grad()
        loss_g.backward()
        optimizer_g.step()

        if step % report_every == 0 or step == args.steps:
            modes, good = score(generator, args.latent, centres)
            print(
                f"step {step:5d}  loss D {loss_d.item():.9g}  loss G {loss_g.item():.9g}  "
                f"modes {modes}/{MODES}  good samples {good:.4f}",
                flush=True,
            )
    print(f"result: {modes} of {MODES} modes, {good:.1%} of the samples near one, after {args.steps} steps")


if __name__ == "__main__":
    main()
