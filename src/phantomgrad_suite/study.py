"""One study from a composed configuration: skip it, or measure; then write its record."""

from __future__ import annotations

import logging
import re
import time
from datetime import UTC, datetime

import torch
from omegaconf import DictConfig

from phantomgrad_suite.jobs.build import build
from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.jobs.environment import describe_environment
from phantomgrad_suite.jobs.job import run_job
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import Identity
from phantomgrad_suite.runs.records import StudyRecord
from phantomgrad_suite.studies.base import Study

log = logging.getLogger(__name__)
_SETTINGS = {"seed", "device", "threads", "label", "runtime", "setting", "rows"}


def run_study(config: DictConfig) -> None:
    """Execute the study that ``config`` describes, unless it is finished.

    Args:
        config: the composed configuration (``configs/study.yaml``).

    Raises:
        UserError: something the user can put right, or a claim of the study does not hold; its
            record says which, and by how much.
    """
    unknown = sorted(set(config) - _SETTINGS)
    if unknown:
        raise UserError(
            f"a study has no {', '.join(unknown)}: what it measures is set by "
            f"setting.{', setting.'.join(k for k in config.setting if not k.startswith('_'))}"
        )
    record = run_job(config, lambda identity, _: _measure(config, identity))
    failed = [check for check in getattr(record, "checks", []) if not check.holds]
    if failed:
        claims = "; ".join(f"{c.claim}: {c.value:.6g} (bound {c.bound:g})" for c in failed)
        raise UserError(f"{config.label.row}: a claim does not hold: {claims}")


def _measure(config: DictConfig, identity: Identity) -> tuple[StudyRecord, str]:
    started, clock, cpu = datetime.now(UTC), time.perf_counter(), time.process_time()
    study, device = build(config.setting, "setting"), find_device(str(config.device))
    if not isinstance(study, Study):
        raise UserError(f"setting._target_ must be a study, got {type(study).__name__}")
    if config.threads is not None:
        if type(config.threads) is not int or config.threads < 1:
            raise UserError(f"threads must be a positive integer, got {config.threads!r}")
        torch.set_num_threads(config.threads)
    log.info("%s %s: started", identity.row, identity.instance)
    try:
        findings = study.measure(config.seed, device)
    except ValueError as error:
        raise UserError(f"{identity.row}: {error}") from error
    changes, resolved = [*config.label.reduced, *identity.changes], as_dict(config)
    record = StudyRecord(
        row=identity.row,
        instance=identity.instance,
        protocol="reduced" if changes else "full",
        changes=changes,
        setting={k: v for k, v in resolved["setting"].items() if k != "_target_"},
        numbers=findings.numbers,
        checks=findings.checks,
        seconds={"total": time.perf_counter() - clock, "cpu": time.process_time() - cpu},
        environment=describe_environment(device),
        config=resolved,
        config_hash=identity.config_hash,
        started=started.isoformat(timespec="seconds"),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    hold, total = sum(check.holds for check in record.checks), len(record.checks)
    claims = f"{hold} of {total} claims hold" if total else "measured"
    return record, f"{claims} ({record.seconds['total']:.0f} s)"


def find_device(name: str, allowed: str = "cpu or cuda") -> torch.device:
    """Return the device called ``name``, for example ``cuda:1``."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"device must be {allowed}, got {name!r}")
    if name != "cpu" and not torch.cuda.is_available():
        raise UserError(f"device={name}, but torch sees no CUDA device")
    return torch.device(name)
