"""All cases of one run, from the options to the files."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from phantomgrad_suite.bench import peer
from phantomgrad_suite.bench.contest import Case, Comparison, measure, unmet
from phantomgrad_suite.bench.epochs import EpochCost, as_epoch_table, epoch_costs
from phantomgrad_suite.bench.figure1 import FigureCase
from phantomgrad_suite.bench.graphs import graph_cases
from phantomgrad_suite.bench.images import image_cases
from phantomgrad_suite.bench.language import language_cases
from phantomgrad_suite.bench.options import Options
from phantomgrad_suite.bench.report import as_data, as_gradient_table, as_table
from phantomgrad_suite.bench.solvers import solver_cases
from phantomgrad_suite.bench.steps import convolution_cases
from phantomgrad_suite.jobs.environment import describe_environment
from phantomgrad_suite.runs.errors import MissingDataError, UserError
from phantomgrad_suite.runs.records import write_json
from phantomgrad_suite.studies.clock import Clock
from phantomgrad_suite.studies.figure1 import Precision

SCHEMA = 1

_EPOCHS = """An epoch of IGNN on COX2 (420 training graphs, batches of 128, then the test fold), the
mean of the first {}. `update` is Adam and the projection; the adjoint starts from its own right
side, and NPG and UPG take five steps."""

_GRADIENTS = """What the phantom gradient saves: seconds with implicit differentiation over those
with UPG (ratios of the medians), and images, graphs or words a second."""

_log = logging.getLogger("phantomgrad_suite")


def run(options: Options) -> list[Comparison]:
    """Measure every case, log the table, and write it and the data to ``options.output``.

    Raises:
        UserError: the device is not there, or no case has ``options.only`` in its name.
    """
    device, version = options.resolve_device(), peer.version()
    if options.quick:
        options = replace(options, repeats=min(options.repeats, 2), seconds=0.0, epochs=1)
    if version is None:
        _log.warning(peer.MISSING)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    comparisons = _measure_all(_cases(options), device, version is not None, options)
    epochs = _epochs(options, device)
    table = as_table(comparisons)
    gradients = as_gradient_table(comparisons)
    if gradients:
        table += f"\n\n{_GRADIENTS}\n\n{gradients}"
    if epochs:
        table += f"\n\n{_EPOCHS.format(epochs[0].epochs)}\n\n{as_epoch_table(epochs)}"
    _log.info("\n%s", table)
    for line in unmet(comparisons):
        _log.info("not met: %s", line)
    data = {
        "schema": SCHEMA,
        "started": started,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": str(device),
        "clock": Clock(device).name,
        "torchdeq": version,
        "environment": describe_environment(device),
        "options": asdict(options),
        "cases": [as_data(comparison) for comparison in comparisons],
        "epochs": [asdict(cost) for cost in epochs],
    }
    _write(data, table, options, device)
    return comparisons


def _epochs(options: Options, device: torch.device) -> list[EpochCost]:
    if options.only:
        return []
    _log.info("IGNN on COX2, %d epochs with each gradient", options.epochs)
    try:
        return epoch_costs(Path(options.data), options.epochs, device)
    except MissingDataError as error:
        _log.warning("%s", error)
        return []


def _cases(options: Options) -> list[Case]:
    if options.quick:
        cases: list[Case] = [
            *solver_cases(((512, 128),)),
            *convolution_cases(batch=4, side=16),
            *graph_cases(graphs=16),
            FigureCase(study=Precision(samples=10, batch=5)),
            *image_cases((("tiny", 1),)),
            *language_cases(batch=1, length=16),
        ]
    else:
        cases = [*solver_cases(), *convolution_cases(), *graph_cases(), FigureCase()]
        cases += [*image_cases(), *language_cases()]
    wanted = options.only.casefold()
    chosen = [case for case in cases if wanted in case.name.casefold()]
    if not chosen:
        names = ", ".join(repr(case.name) for case in cases)
        raise UserError(f"no case has {options.only!r} in its name; there are {names}")
    return chosen


def _measure_all(
    cases: list[Case], device: torch.device, with_peer: bool, options: Options
) -> list[Comparison]:
    comparisons = []
    for number, case in enumerate(cases, start=1):
        started = time.perf_counter()
        comparison = measure(case, device, with_peer, options)
        comparisons.append(comparison)
        quantity = comparison.quantities[0]
        ratio = comparison.paired_ratio(quantity)
        said = "measured alone" if ratio is None else f"{quantity} {ratio:.2f} times less"
        spent = time.perf_counter() - started
        _log.info("[%d/%d] %s: %s (%.0f s)", number, len(cases), case.name, said, spent)
    return comparisons


def _write(data: dict[str, Any], table: str, options: Options, device: torch.device) -> None:
    """Write both files; whatever is no full run goes to files of its own."""
    threads = data["environment"]["threads"]
    marks = {
        f"{threads}threads": device.type == "cpu" and threads != 1,
        "quick": options.quick,
        _slug(options.only): bool(options.only),
        "alone": data["torchdeq"] is None,
    }
    name = "-".join([device.type, *(mark for mark, holds in marks.items() if holds)])
    folder = Path(options.output)
    write_json(data, folder / f"{name}.json")
    (folder / f"{name}.md").write_text(f"{_preface(data, name)}\n\n{table}\n", encoding="utf-8")
    _log.info("written: %s", folder / f"{name}.json")


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.casefold()).strip("-") or "part"


def _preface(data: dict[str, Any], name: str) -> str:
    environment = data["environment"]
    cuda = data["device"].startswith("cuda")
    hardware = environment["accelerator"] if cuda else environment["processor"]
    return (
        f"# Ours against torchdeq {data['torchdeq']}\n\n"
        f"{hardware}, {environment['threads']} CPU thread(s), "
        f"torch {environment['versions']['torch']}, {data['started']}.\n"
        f"Medians ({data['clock']}); `times less` is theirs over ours, `paired` the median of\n"
        "that ratio within a round. Time outside f is what a solver itself takes; a step is\n"
        "forward and backward. `step but outside f` is what it were if our solvers cost nothing,\n"
        "and beside it the most there is to win so. A row `against x` has x in the column of\n"
        "torchdeq; `torchdeq on our f` is given a map whose constants are computed once per\n"
        "segment, as ours is. Written by `make bench`; every sample is in\n"
        f"`{name}.json`."
    )
