"""What ``scripts/train.py`` and ``scripts/study.py`` do with a composed configuration.

What executes a job is imported only when one has to be executed: torch and Lightning take seconds,
which a finished job, a list of commands or ``--help`` should not wait for.
"""

from omegaconf import DictConfig

from phantomgrad_suite.jobs.job import open_job
from phantomgrad_suite.runs.errors import UserError


def train(config: DictConfig) -> None:
    """Execute the training run that ``config`` describes, unless it is finished.

    Raises:
        UserError: something the user can put right; nothing has been overwritten.
        Stopped: a signal has stopped the run; there is a checkpoint, or the record.
    """
    stopped = None
    with open_job(config) as job:
        if job.pending:
            from phantomgrad_suite.train import execute

            stopped = execute(config, job)
    if stopped:  # in the last epoch: the next runs are not started
        raise stopped


def run_study(config: DictConfig) -> None:
    """Execute the study that ``config`` describes, unless it is finished.

    Raises:
        UserError: the user can put it right, or a claim of the study does not hold.
    """
    with open_job(config) as job:
        record = job.record
        if job.pending:
            from phantomgrad_suite.study import measure

            record = measure(config, job.identity)
            job.finish(record)
    failed = [check for check in getattr(record, "checks", []) if not check.holds]
    if failed:
        claims = "; ".join(f"{c.claim}: {c.value:.6g} (bound {c.bound:g})" for c in failed)
        raise UserError(f"{config.label.row}: a claim does not hold: {claims}")
