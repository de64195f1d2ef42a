"""Small jobs first, but nobody waits for ever."""


class Patience:
    """Each GPU that a job asks for puts it behind those that come in the next so many seconds, and no others."""

    name, places, preempts, backfill = "patience", None, False, True
    options = ("patience",)

    def __init__(self, patience_s):
        self.patience_s = patience_s

    @classmethod
    def from_config(cls, config):
        return cls(dict(config.options).get("patience", 3600.0))

    def order(self, job, at_s):
        return (job.arrival_s + self.patience_s * job.spec.gpus,)

    def drift(self, job):
        return 0.0

    def lane(self, lane):
        return (len(lane.jobs), lane.number)

    def rank(self, job):
        return job.arrival_s + self.patience_s * job.spec.gpus
