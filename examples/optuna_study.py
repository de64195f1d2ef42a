"""Optuna study, the trials of which share a device."""

import optuna
import torch

from ecoshare.integrations.optuna import optimize

torch.manual_seed(0)
features = torch.randn(256, 8)
targets = features.square().sum(1, keepdim=True)


def objective(trial):
    width = trial.suggest_int("width", 4, 64, log=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=trial.suggest_float("lr", 1e-3, 0.1, log=True))
    for epoch in range(30):
        loss = (model(features) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.report(loss.item(), epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss.item()


study = optuna.create_study()
done = optimize(study, objective, n_trials=20)  # was: study.optimize(objective, n_trials=20)
print(study.best_params, done.run)
