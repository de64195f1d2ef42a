"""Small jobs first, but nobody waits for ever."""

from ecoshare.core.policies.common import WithOptions


class Patience(WithOptions):
    """Each GPU that a job asks for puts it behind those that come in the next so many seconds, and no others."""

    name, preempts = "patience", False
    options = ("patience",)

    def __init__(self, options):
        self.patience_s = options.get("patience", 3600.0)

    def order(self, job, at_s):
        return (job.arrival_s + self.patience_s * job.spec.gpus,)
