"""Q-learning with a target network under no_grad inside the step.

Such a forward ends no iteration: the activations of the open step are alive. With --act the agent also chooses
an action under no_grad between a step and the next forward with gradients.
"""

import argparse
import copy

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--act", action="store_true")
args = parser.parse_args()

torch.manual_seed(26)
online = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.RMSprop(online.parameters(), lr=0.002)
state = torch.randn(4)

for step in range(20):
    if args.act:
        with torch.no_grad():
            action = online(state).argmax().item()
        state = (state.roll(1) + 0.1 * action).tanh()
    states, actions = torch.randn(16, 4), torch.randint(0, 3, (16, 1))
    rewards = states.sum(dim=1) * (actions.squeeze(1) - 1)
    values = online(states).gather(1, actions).squeeze(1)
    with torch.no_grad():
        wanted = rewards + 0.9 * target(states.roll(1, dims=1)).amax(dim=1)
    loss = nn.functional.smooth_l1_loss(values, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 6 == 5:
        target.load_state_dict(online.state_dict())
    print(step, f"{loss:.9g}")
print("state", [f"{value:.9g}" for value in state.tolist()])
