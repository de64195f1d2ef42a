"""Train a variational autoencoder on drawn shapes (Kingma and Welling, 2014)."""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shapes


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--latent", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    # cuBLAS repeats bit for bit only with a fixed workspace; the CPU ignores this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


class VAE(nn.Module):
    def __init__(self, latent: int) -> None:
        super().__init__()
        # Images of 20 x 20 shrink to 10 x 10, then 5 x 5, and grow back the same way.
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 5 * 5, 128),
            nn.ReLU(),
            nn.Linear(128, 2 * latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, 128),
            nn.ReLU(),
            nn.Linear(128, 32 * 5 * 5),
            nn.ReLU(),
            nn.Unflatten(1, (32, 5, 5)),
            nn.ConvTranspose2d(32, 16, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, kernel_size=4, stride=2, padding=1),
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def negative_elbo(
    logits: torch.Tensor, images: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reconstruction error and KL divergence to the unit normal, in nats an image; their sum is the loss."""
    reconstruction = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return reconstruction / len(images), divergence / len(images)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss in nats an image, and mean squared error of a pixel."""
    model.eval()
    loss = torch.zeros((), device=device)
    error = torch.zeros((), device=device)
    for (images,) in loader:
        images = images.to(device)
        logits, mean, log_variance = model(images)
        reconstruction, divergence = negative_elbo(logits, images, mean, log_variance)
        loss += reconstruction + divergence
        error += F.mse_loss(logits.sigmoid(), images)
    return (loss / len(loader)).item(), (error / len(loader)).item()


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device(args.device)

    painter = torch.Generator().manual_seed(args.seed)
    train_images, _ = shapes.draw(4096, painter)
    valid_images, _ = shapes.draw(512, painter)
    train_loader = DataLoader(TensorDataset(train_images), args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(TensorDataset(valid_images), batch_size=256)

    model = VAE(args.latent).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    error = 0.0
    for epoch in range(1, args.epochs + 1):
        model.train()
        sums = torch.zeros(2, device=device)
        for (images,) in train_loader:
            images = images.to(device)
            logits, mean, log_variance = model(images)
            reconstruction, divergence = negative_elbo(logits, images, mean, log_variance)
            optimizer.zero_grad()
            (reconstruction + divergence).backward()
            optimizer.step()
            sums += torch.stack([reconstruction, divergence]).detach()
        mean_reconstruction, mean_divergence = (sums / len(train_loader)).tolist()
        valid_loss, error = evaluate(model, valid_loader, device)
        print(
            f"epoch {epoch:2d}  reconstruction {mean_reconstruction:.9g}  divergence {mean_divergence:.9g}  "
            f"valid loss {valid_loss:.9g}",
            flush=True,
        )
    print(f"result: mean squared error of a pixel {error:.5f} after {args.epochs} epochs")


if __name__ == "__main__":
    main()
