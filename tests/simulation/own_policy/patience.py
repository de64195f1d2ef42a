"""Small jobs first, but no job waits for ever."""

from ecoshare.core.policies.common import WithOptions


class Patience(WithOptions):
    """A job waits only for jobs that arrive within `patience` seconds after it, for each GPU that it asks for."""

    name, preempts = "patience", False
    options = ("patience",)

    def __init__(self, options):
        self.patience_s = options.get("patience", 3600.0)

    def order(self, job, at_s):
        return (job.arrival_s + self.patience_s * job.spec.gpus,)
