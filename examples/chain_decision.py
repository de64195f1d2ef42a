r"""Decision whether to submit the successor of a Slurm job now, from two files.

On the cluster::

    sacct --allusers --partition=gpu --starttime=now-60days --parsable2 \
          --format=JobID,User,Partition,Submit,Eligible,Start,End,Timelimit,State,AllocTRES,ReqTRES > sacct.txt
    form=$(python -c 'from ecoshare.contrib.chains.logs.squeue_listing import FORMAT; print(FORMAT)')
    squeue --all --array --noheader --partition=gpu --Format="$form" > squeue.txt
"""

from datetime import UTC, datetime
from pathlib import Path

from ecoshare.contrib.chains.gradient_boosting import GradientBoosting
from ecoshare.contrib.chains.logs import batch_log, squeue_listing
from ecoshare.contrib.chains.provisioner import Provisioner
from ecoshare.contrib.chains.wait_predictor import logged_samples

now_s = datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp()  # local time of the cluster, read as UTC
log = batch_log.read(Path("sacct.txt"))
samples = logged_samples(log.jobs, gpus=64, until_s=now_s)
rule = Provisioner(GradientBoosting(samples), margin_s=2 * 3600)
sight = squeue_listing.sight(Path("squeue.txt").read_text(), gpus=64, at_s=now_s, past=log.jobs)
decision = rule.decide(sight, remaining_s=6 * 3600, gpus=8, limit_s=24 * 3600)
print(f"submit: {decision.submit}, predicted wait: {decision.wait_s / 3600:.1f} h")
