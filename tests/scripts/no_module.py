"""Plain tensors and gradient descent by hand: no module, no optimizer, so nothing to hook."""

import torch

torch.manual_seed(20)
x, y = torch.randn(40, 4), torch.randn(40, 1)
w1 = torch.randn(4, 10).div(2).requires_grad_()
w2 = torch.randn(10, 1).div(3).requires_grad_()

for step in range(20):
    loss = ((x @ w1).tanh() @ w2 - y).square().mean()
    gradients = torch.autograd.grad(loss, [w1, w2])
    with torch.no_grad():
        for weight, gradient in zip([w1, w2], gradients, strict=True):
            weight -= 0.1 * gradient
    print(step, f"{loss:.9g}")
