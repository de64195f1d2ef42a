"""L-BFGS calls its closure many times in one step: forwards and backwards inside a step are no boundaries."""

import torch

torch.manual_seed(11)
x = torch.linspace(-2, 2, 64).unsqueeze(1)
y = torch.sin(2 * x)
model = torch.nn.Sequential(torch.nn.Linear(1, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe")
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for step in range(10):
    loss = optimizer.step(closure)
    print(step, f"{loss:.9g}", "closures", calls)
