"""One study, measured as its configuration describes; ``start.py`` has what comes before."""

import logging
import re
import time

import torch
from omegaconf import DictConfig

from phantomgrad_suite.jobs.build import build
from phantomgrad_suite.jobs.environment import describe_environment
from phantomgrad_suite.jobs.job import now, origin, protocol
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import StudyRecord
from phantomgrad_suite.studies.base import Study

log = logging.getLogger(__name__)


def measure(config: DictConfig, identity: Identity) -> StudyRecord:
    """Return the record of the study that ``config`` describes."""
    facts, clock, cpu = origin(config, identity), time.perf_counter(), time.process_time()
    places = config.runtime.get("setting") or {}
    study, device = build(config.setting, "setting", **places), find_device(str(config.device))
    if not isinstance(study, Study):
        raise UserError(f"setting._target_ must be a study, got {type(study).__name__}")
    if config.threads is not None:
        if type(config.threads) is not int or config.threads < 1:
            raise UserError(f"threads must be a positive integer, got {config.threads!r}")
        torch.set_num_threads(config.threads)
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
        environment=describe_environment(device),
        finished=now(),
    )
    hold, total = sum(check.holds for check in record.checks), len(record.checks)
    claims = f"{hold} of {total} claims hold" if total else "measured"
    log.info("%s: %s (%.0f s)", identity, claims, record.seconds["total"])
    return record


def find_device(name: str) -> torch.device:
    """Return the device called ``name``, for example ``cuda:1``."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"device must be cpu or cuda, got {name!r}")
    if name != "cpu" and not torch.cuda.is_available():
        raise UserError(f"device={name}, but torch sees no CUDA device")
    return torch.device(name)
