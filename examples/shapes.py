"""Small grey images of five shapes, drawn on the spot: data for cnn.py and vae.py without a download."""

import math

import torch

NAMES = ("disk", "ring", "square", "triangle", "cross")
SIZE = 20


def draw(count: int, generator: torch.Generator, noise: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (count, 1, SIZE, SIZE) in [0, 1] with their labels (count,).

    Each shape has its own place, size, rotation and brightness. `noise` is the standard deviation of a
    grey grain over the whole image.
    """
    labels = torch.randint(len(NAMES), (count,), generator=generator)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    radius = uniform(4.5, 7.5)
    centre_x, centre_y = uniform(7.5, 11.5), uniform(7.5, 11.5)
    turn = uniform(-math.pi / 8, math.pi / 8)
    brightness = uniform(0.7, 1.0)

    # Every pixel in the coordinates of its own shape: shifted, then rotated.  (count, SIZE, SIZE)
    grid = torch.arange(SIZE, dtype=torch.float32)
    dx, dy = grid.view(1, 1, -1) - centre_x, grid.view(1, -1, 1) - centre_y
    x = dx * turn.cos() + dy * turn.sin()
    y = dy * turn.cos() - dx * turn.sin()

    # Signed distances to the five outlines in pixels, negative inside.  (count, 5, SIZE, SIZE)
    from_centre = (x**2 + y**2).sqrt()
    box = torch.maximum(x.abs(), y.abs())
    slope = math.sqrt(3) / 2 * x.abs() - y / 2
    distances = torch.stack(
        [
            from_centre - radius,
            (from_centre - 0.8 * radius).abs() - 1.2,
            box - 0.8 * radius,
            torch.maximum(slope, y) - 0.55 * radius,
            torch.maximum(torch.minimum(x.abs(), y.abs()) - 1.5, box - radius),
        ],
        dim=1,
    )
    own = distances[torch.arange(count), labels]
    images = brightness * (0.5 - own).clamp(0, 1)  # a soft edge, one pixel wide
    if noise:
        images = images + noise * torch.randn(images.shape, generator=generator)
    return images.clamp(0, 1).unsqueeze(1), labels
