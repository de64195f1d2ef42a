"""Jobs that have waited long go first."""

import math

from patience import Patience


class Impatient(Patience):
    """Order of `Patience`; but a job that has waited ten times as long goes before all jobs that have not."""

    name = "impatient"

    def changes_s(self, job, at_s):
        waits = job.state.waits and not job.level
        return job.waits_since_s + 10.0 * self.patience_s if waits else math.inf

    def change(self, job, at_s):
        job.level = 1

    def order(self, job, at_s):
        return (-job.level, *super().order(job, at_s))

    def rank(self, job):
        return super().order(job, job.told_s)[0]  # the turn goes round as before
