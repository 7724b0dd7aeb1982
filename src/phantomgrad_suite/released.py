"""Trained models that the repository publishes: released, loaded, and verified on their data.

A model is ``results/weights/<row>/<instance>.safetensors``, the weights after the last epoch of a
run, with the run's record next to it as ``.json``. The header of the weights holds the sizes that
the model took from the data, so that it can be built without them.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import save
from torch import nn

from phantomgrad_suite.data.sources import sha256
from phantomgrad_suite.evaluate import compare, metrics
from phantomgrad_suite.jobs.build import build, build_data
from phantomgrad_suite.jobs.trained import (
    RESULTS,
    configuration,
    data_in,
    read_released,
    read_run,
    read_weights,
    released,
    weights_file,
)
from phantomgrad_suite.runs.errors import MissingDataError, UserError
from phantomgrad_suite.runs.files import atomic_write
from phantomgrad_suite.runs.records import read_record, write_record
from phantomgrad_suite.train import prepare


def load_model(name: str, results: Path = RESULTS) -> nn.Module:
    """Return a released model in evaluation mode, on the CPU; no data are needed.

    Args:
        name: row and instance, ``"digits/upg_k5_d0.5/seed0"``; the row alone if one instance of it
            is released.
        results: the folder of results, by default that of the checkout.

    Raises:
        UserError: there is no such model, or its file is not that of ``SHA256SUMS``.
    """
    found = read_released(name, results)
    model: nn.Module = build(configuration(found.record).model, "model", **found.sizes)
    model.load_state_dict(found.weights)
    return model.eval()


def verify(names: Sequence[str] = (), data: Path = Path("data"), results: Path = RESULTS) -> bool:
    """Evaluate released models on the data in ``data``; return whether all give recorded values.

    Prints a line for each. Models whose data are missing are skipped; a :class:`UserError` says
    that there are no models.
    """
    if not (names := names or released(results)):
        raise UserError(f"{results / 'weights'} holds no models to verify")
    agree = [_verified(name, data, results) for name in names]
    return all(agree)


def release(folder: Path, results: Path = RESULTS) -> Path:
    """Publish weights and record of a finished run; rewrite checksums and cards."""
    record = read_run(folder)
    kept = record.weights["last"]
    if str(record.environment.get("git")).endswith("+dirty"):
        raise UserError(f"{folder} was made from a changed checkout: nobody could repeat it")
    sizes = json.dumps(dict(build_data(configuration(record)).sizes()))
    path = weights_file(f"{record.row}/{record.instance}", results)
    weights = {key: value.contiguous() for key, value in read_weights(folder, kept).items()}
    with atomic_write(path) as temporary:
        temporary.write_bytes(save(weights, {"sizes": sizes}))
    write_record(record, path.with_suffix(".json"))
    names = released(results)
    checksums = (f"{sha256(weights_file(name, results))}  {name}.safetensors\n" for name in names)
    with atomic_write(results / "weights" / "SHA256SUMS") as temporary:
        temporary.write_text("".join(checksums))
    with atomic_write(results / "weights" / "README.md") as temporary:
        temporary.write_text(_CARDS + "".join(_card(name, results) for name in names))
    return path


def _verified(name: str, data: Path, results: Path) -> bool:
    name, record, weights, _ = read_released(name, results)
    metric, step = record.result.metric, record.weights["last"]["step"]
    try:
        config = configuration(record, data_in(data, record))
        found = metrics(config, prepare(config), weights, step)[f"test/{metric}"]
    except MissingDataError as error:
        print(f"{name}: skipped, {error}")
        return True
    return compare(f"{name} {metric}", record.result.last, found)


_CARDS = """# Released models

Small models, for tests and examples. `make verify` evaluates each of them again and compares with
its record; it skips those whose data are not in `data/`. A record has the configuration of its run.

```python
from phantomgrad_suite import load_model

model = load_model("digits/upg_k5_d0.5")  # in evaluation mode; no data are needed
```
"""


def _card(name: str, results: Path) -> str:
    path = weights_file(name, results)
    record = read_record(path.with_suffix(".json"))
    result, label, sizes = record.result, record.label, record.parameters
    seed = f"{record.instance}, {sizes['total']:,} parameters"
    protocol = "; ".join(record.changes) or "none"
    kind = record.environment.get("processor", "an unnamed processor")
    return f"""
## {name}

| | |
|---|---|
| Model | {label["model"]}, {label["method"]}, {seed} |
| Data | {label["dataset"]}, `{record.data["fingerprint"][:23]}` |
| Differences from the row's full protocol | {protocol} |
| Test {result.metric.replace("_", " ")}, last epoch (these weights) | {result.last:.4f} |
| Best epoch | {result.best:.4f} (epoch {result.best_epoch}) |
| Trained | {record.finished[:10]}, revision `{str(record.environment.get("git"))[:7]}`, {kind} |
| File | `{name}.safetensors`, {path.stat().st_size / 1e3:,.0f} kB |
| SHA-256 | `{sha256(path)}` |
| Record | [{name}.json]({name}.json) |
"""
