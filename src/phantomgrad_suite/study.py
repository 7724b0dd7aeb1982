"""One study, measured as its configuration describes; ``start.py`` has what comes before."""

import logging
import re
import time

import torch
from omegaconf import DictConfig

from phantomgrad_suite.jobs.build import build
from phantomgrad_suite.jobs.environment import choose_threads, describe_environment, load_average
from phantomgrad_suite.jobs.job import now, origin, protocol
from phantomgrad_suite.runs.errors import SettingError, UserError
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import StudyRecord
from phantomgrad_suite.studies.base import Study

log = logging.getLogger(__name__)


def measure(config: DictConfig, identity: Identity) -> StudyRecord:
    """Return the record of the study that ``config`` describes."""
    facts, clock, cpu = origin(config, identity), time.perf_counter(), time.process_time()
    load = {"start": load_average()}
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
        environment={
            **describe_environment(device),
            "load": {**load, "end": load_average()},
        },
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
    device, count = torch.device(name), torch.cuda.device_count()
    if name != "cpu" and (device.index or 0) >= count:
        raise SettingError(f"device={name}, but torch sees {count} CUDA device{'s' * (count != 1)}")
    return device
