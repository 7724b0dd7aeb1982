"""What becomes of finished runs: evaluated again, loaded, released and published."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from safetensors.torch import save
from torch import nn

from phantomgrad_suite.data import DataModule
from phantomgrad_suite.data.sources import sha256
from phantomgrad_suite.jobs.build import build, build_data, prepare
from phantomgrad_suite.jobs.trained import (
    configuration,
    evaluate,
    read_released,
    read_run,
    read_weights,
    released,
    weights_file,
)
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.configs import RESULTS
from phantomgrad_suite.runs.errors import MissingDataError, UserError
from phantomgrad_suite.runs.files import write_file
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.records import (
    Record,
    as_json,
    made_from_changes,
    read_record,
    write_record,
)

# Less than one of 50,000 test images, and more than what processors differ by in a loss.
_TOLERANCE = 1e-5


def load_model(name: str, results: Path = RESULTS, data: Path | None = None) -> nn.Module:
    """Return a trained model in evaluation mode, on the CPU.

    Args:
        name: a released model, which needs no data: row and instance,
            ``"digits/upg_k5_d0.5/seed0"``, or the row alone if one instance of it is released. Or
            the folder of a finished run of yours, ``"runs/digits/implicit/seed0"``, whose data must
            be there, since the model's sizes come from them; the weights are those of the last
            epoch. What its record names is built: load runs that you trust.
        results: the folder of results, by default that of the checkout.
        data: the folder of the data of your run, by default that of its configuration.

    Raises:
        UserError: there is no such model, or its file is not that of its checksum.
    """
    folder = Path(name)
    if RunFolder(folder).record.is_file():
        record = read_run(folder)
        weights = read_weights(folder, record.weights["last"])
        sizes: Any = build_data(configuration(record, data and Path(data))).sizes()
    else:
        record, weights, sizes = read_released(name, results)
    model: nn.Module = build(configuration(record).model, "model", **sizes)
    model.load_state_dict(weights)
    return model.eval()


def verify(names: Sequence[str] = (), data: Path | None = None, results: Path = RESULTS) -> bool:
    """Evaluate models on the data in ``data``; return whether all give the recorded values.

    They are the released models of these names, by default all, with data in ``data`` of this
    folder; or those of folders of runs, with the data of the run. Prints a line for each.
    Released models whose data are missing are skipped; a :class:`UserError` says that there are no
    models. What a record names is built: use those that you trust.
    """
    if not (names := names or released(results)):
        raise UserError(f"{results / 'weights'} holds no models to verify")
    agree = [_verified(name, data, results) for name in names]
    return all(agree)


def _verified(name: str, data: Path | None, results: Path) -> bool:
    is_run = RunFolder(Path(name)).record.is_file()
    if is_run:
        record = read_run(Path(name))
        models = {key: read_weights(Path(name), kept) for key, kept in record.weights.items()}
    else:
        record, last, _ = read_released(name, results)
        models = {"last": last}
    config = configuration(record, data if data or is_run else Path("data"))
    try:
        module = _same_data(config, record)
    except MissingDataError as error:
        if is_run:
            raise
        print(f"{name}: skipped, {error}")
        return True
    agree, steps = [], record.weights["last"]["step"]
    for key, weights in models.items():
        found = evaluate(config, module, weights, record.weights[key]["step"], steps)
        agree.append(_compare(f"{name}, {key} {record.result.metric}", record, key, found))
    return all(agree)


def _same_data(config: DictConfig, record: Record) -> DataModule:
    """Return the data; print a line if they are not those that a run was made on."""
    data = prepare(config)
    then, now = record.data.get("fingerprint"), data.facts().get("fingerprint")
    if now != then:
        print(f"the data differ: the run has the fingerprint {then}, these have {now}", flush=True)
    return data


def _compare(title: str, record: Record, name: str, metrics: Mapping[str, float]) -> bool:
    """Print a recorded and a recomputed value; return whether they agree."""
    recorded, found = getattr(record.result, name), metrics[f"test/{record.result.metric}"]
    same = math.isclose(found, recorded, rel_tol=_TOLERANCE)
    values = f"recorded {recorded:.8g}, recomputed {found:.8g}"
    print(f"{title}: {values}{'' if same else ': they differ'}", flush=True)
    return same


def publish(yours: Path, results: Path = RESULTS) -> list[str]:
    """Copy the records of ``yours`` that differ to ``results``; return a line for each.

    Records of runs from a checkout with changes are left out: nobody could repeat them.
    """
    if not (yours / "records").is_dir():
        raise UserError(f"{yours / 'records'} is not a folder: no row has been finished there")
    own, published, lines = Archive(yours / "records"), Archive(results / "records"), []
    known = published.records
    for (row, instance), record in own.records.items():
        before = known.get((row, instance))
        if before and as_json(before) == as_json(record):  # NaN, of a diverged run, is not NaN
            continue
        if made_from_changes(record):
            lines.append(f"left out, made from a changed checkout: {row} {instance}")
            continue
        published.add(record)
        lines.append(f"published: {row} {instance}")
    return lines


def release(folder: Path, results: Path = RESULTS) -> Path:
    """Publish weights and record of a finished run; rewrite checksums and their list."""
    record = read_run(folder)
    if made_from_changes(record):
        raise UserError(
            f"{folder} was made from a changed checkout, so nobody could repeat it: commit the "
            "changes and train the run again"
        )
    sizes = json.dumps(dict(build_data(configuration(record)).sizes()))
    path = weights_file(f"{record.row}/{record.instance}", results)
    kept = read_weights(folder, record.weights["last"])
    weights = {key: value.contiguous() for key, value in kept.items()}
    write_file(path, save(weights, {"sizes": sizes}))
    write_record(record, path.with_suffix(".json"))
    names = released(results)
    checksums = (f"{sha256(weights_file(name, results))}  {name}.safetensors\n" for name in names)
    write_file(results / "weights" / "SHA256SUMS", "".join(checksums).encode())
    readme = _HEAD + "".join(_line(name, results) for name in names)
    write_file(results / "weights" / "README.md", readme.encode())
    return path


_HEAD = """# Released models

Small models, for tests and examples. `make verify` evaluates each of them again and compares with
its record; it skips those whose data are not in `data/`. The weights are those of the last epoch;
the record next to them has configuration, data, revision and differences from the paper's protocol.

```python
from phantomgrad_suite import load_model

model = load_model("digits/upg_k5_d0.5")  # in evaluation mode; no data are needed
```

| Record | Model | Parameters | Data | Test, last epoch |
|---|---|--:|---|--:|
"""


def _line(name: str, results: Path) -> str:
    record = read_record(weights_file(name, results).with_suffix(".json"))
    label, result = record.label, record.result
    model, size = f"{label['model']}, {label['method']}", f"{record.parameters['total']:,}"
    value = f"{result.metric.replace('_', ' ')} {result.last:.4f}"
    return f"| [{name}]({name}.json) | {model} | {size} | {label['dataset']} | {value} |\n"
