"""One study from a composed configuration: skip it, or measure; then write its record."""

import logging
import re
import time

import torch
from omegaconf import DictConfig

from phantomgrad_suite.jobs.build import build
from phantomgrad_suite.jobs.environment import choose_threads, describe_environment
from phantomgrad_suite.jobs.job import now, open_job, origin, protocol
from phantomgrad_suite.runs.errors import SettingError, UserError
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import StudyRecord
from phantomgrad_suite.studies.base import Study

log = logging.getLogger(__name__)


def run_study(config: DictConfig) -> None:
    """Execute the study that ``config`` describes, unless it is finished.

    Raises:
        UserError: the user can put it right, or a claim of the study does not hold.
    """
    with open_job(config) as job:
        record = job.record
        if job.pending:
            record = _measure(config, job.identity)
            job.finish(record)
    failed = [check for check in getattr(record, "checks", []) if not check.holds]
    if failed:
        claims = "; ".join(f"{c.claim}: {c.value:.6g} (bound {c.bound:g})" for c in failed)
        raise UserError(f"{config.label.row}: a claim does not hold: {claims}")


def _measure(config: DictConfig, identity: Identity) -> StudyRecord:
    facts, clock, cpu = origin(config, identity), time.perf_counter(), time.process_time()
    places = config.runtime.get("setting") or {}
    study: Study = build(config.setting, "setting", Study, **places)
    device = find_device(str(config.device))
    choose_threads(config.threads, "threads")
    log.info("%s: started", identity)
    try:
        findings = study.measure(config.seed, device)
    except ValueError as error:
        raise UserError(f"{identity.row}: {error}") from error
    record = StudyRecord(
        **facts,
        **protocol(config, identity),
        setting={k: v for k, v in facts["config"]["setting"].items() if k != "_target_"},
        numbers=findings.numbers,
        checks=findings.checks,
        seconds={"total": time.perf_counter() - clock, "cpu": time.process_time() - cpu},
        environment=describe_environment(device, facts["config"]),
        finished=now(),
    )
    hold, total = sum(check.holds for check in record.checks), len(record.checks)
    claims = f"{hold} of {total} claims hold" if total else "measured"
    log.info("%s: %s (%.0f s)", identity, claims, record.seconds["total"])
    return record


def find_device(name: str) -> torch.device:
    """Return the device called ``name``, for example ``cuda:1``."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise SettingError(f"device must be cpu or cuda, got {name!r}")
    if name != "cpu" and not torch.cuda.is_available():
        raise SettingError(f"device={name}, but torch sees no CUDA device")
    return torch.device(name)
