"""A module of the user's own that happens to be called `tuner`."""


def suggest(losses):
    return 0.05 if losses[-1] < losses[0] else 0.01
