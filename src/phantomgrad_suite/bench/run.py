"""A run of the benchmark, from its options to its files."""

import logging
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from phantomgrad.checks import check_at_least
from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.cases import graph_case, solver_cases, training_cases
from phantomgrad_suite.bench.contest import Case, case_table, measure
from phantomgrad_suite.jobs.environment import describe_environment
from phantomgrad_suite.runs.errors import MissingDataError, UserError
from phantomgrad_suite.runs.formats import hardware
from phantomgrad_suite.runs.records import write_json
from phantomgrad_suite.studies.meters import Clock
from phantomgrad_suite.study import find_device

_log = logging.getLogger("phantomgrad_suite")
_TEXT = """# Ours against torchdeq {torchdeq}

{hardware}, torch {environment[versions][torch]}, {started}.
Medians ({clock}). `times less` is theirs over ours. `outside f` is the time that a solver takes
itself. A step is forward and backward; `step in f` is a step without the time outside f of ours, so
its ratio is what would be reached if our solvers cost nothing. `torchdeq on our f` gets a map whose
constants are computed once per segment, as ours is. `make bench` wrote this, and every sample to
`{name}.json`.

{cases}
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run, which ``configs/bench.yaml`` explains."""

    device: str = "auto"
    threads: int | None = 1
    repeats: int = 15
    seconds: float = 10.0
    only: str = ""
    data: str = "data/TUDataset"
    output: str = "results/bench"

    def __post_init__(self) -> None:
        check_at_least("repeats", self.repeats, 1)
        if self.threads is not None:
            check_at_least("threads", self.threads, 1)
        if not self.seconds >= 0:
            raise ValueError(f"seconds must not be negative, got {self.seconds}")


def run(options: Options) -> None:
    """Measure every case, log the table, and write it and the data to ``options.output``."""
    name = options.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device, version = find_device(name, "auto, cpu or cuda"), peer.version()
    if version is None:
        raise UserError(peer.MISSING)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    cases, clock = _cases(options), Clock(device)
    data: dict[str, Any] = {
        "schema": 3,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": str(device),
        "clock": clock.name,
        "torchdeq": version,
        "environment": describe_environment(device),
        "options": asdict(options),
        "cases": [found for case in cases if (found := _measured(case, clock, options))],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = Path(options.output) / f"{_name(data)}.json"
    machine = hardware(data["environment"], on_gpu=device.type == "cuda")
    table = case_table(data["cases"])
    text = _TEXT.format(**data | {"hardware": machine, "name": path.stem, "cases": table})
    _log.info("\n%s", text)
    write_json(data, path)
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    _log.info("written: %s", path)


def _measured(case: Case, clock: Clock, options: Options) -> dict[str, Any] | None:
    _log.info("%s", case.name)
    try:
        return measure(case, clock, options.repeats, options.seconds)
    except MissingDataError as error:
        _log.warning("%s is left out: %s", case.name, error)
        return None


def _cases(options: Options) -> list[Case]:
    cases = [*solver_cases(), *training_cases(), graph_case(options.data)]
    wanted = options.only.casefold()
    chosen = [case for case in cases if wanted in case.name.casefold()]
    if not chosen:
        names = ", ".join(repr(case.name) for case in cases)
        raise UserError(f"no case has {options.only!r} in its name; there are {names}")
    return chosen


def _name(data: dict[str, Any]) -> str:
    """Return the name of the files: a partial run never replaces a full one."""
    options, threads = data["options"], data["environment"]["threads"]
    device = data["device"].split(":")[0]
    marks = [f"{threads}threads"] if device == "cpu" and threads != 1 else []
    if options["only"]:
        marks.append(re.sub(r"[^a-z0-9]+", "-", options["only"].casefold()).strip("-") or "part")
    return "-".join([device, *marks])
