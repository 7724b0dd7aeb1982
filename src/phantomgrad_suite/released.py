"""Trained models that the repository publishes: released, loaded, and verified on their data.

A model is ``results/weights/<row>/<instance>.safetensors``, the weights after the last epoch of a
run, with the run's record next to it as ``.json``. The header of the weights holds the sizes that
the model took from the data, so that it can be built without them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from phantomgrad_suite.data.sources import sha256
from phantomgrad_suite.evaluate import compare, compare_data, metrics
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
from phantomgrad_suite.runs.files import write_file
from phantomgrad_suite.runs.folder import RunFolder
from phantomgrad_suite.runs.records import made_from_changes, read_record, write_record
from phantomgrad_suite.train import prepare


def load_model(name: str, results: Path = RESULTS, data: Path | None = None) -> nn.Module:
    """Return a trained model in evaluation mode, on the CPU.

    Args:
        name: a released model, which needs no data: row and instance,
            ``"digits/upg_k5_d0.5/seed0"``, or the row alone if one instance of it is released. Or
            the folder of a finished run of yours, ``"runs/digits/implicit/seed0"``, whose data must
            be there, since the model's sizes come from them; the weights are those of the last
            epoch.
        results: the folder of results, by default that of the checkout.
        data: the folder of the data of your run, by default that of its configuration.

    Raises:
        UserError: there is no such model, or its file is not that of its checksum.
    """
    folder = Path(name)
    names = {known for full in released(results) for known in (full, full.rpartition("/")[0])}
    if RunFolder(folder).record.is_file() or (folder.is_dir() and name not in names):
        record = read_run(folder)
        weights = read_weights(folder, record.weights["last"])
        overrides = data_in(Path(data), record) if data else []
        sizes: Any = build_data(configuration(record, overrides)).sizes()
    else:
        _, record, weights, sizes = read_released(name, results)
    model: nn.Module = build(configuration(record).model, "model", **sizes)
    model.load_state_dict(weights)
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
    """Publish weights and record of a finished run; rewrite checksums and their list."""
    record = read_run(folder)
    kept = record.weights["last"]
    if made_from_changes(record):
        raise UserError(
            f"{folder} was made from a changed checkout, so nobody could repeat it: commit the "
            "changes and train the run again"
        )
    sizes = json.dumps(dict(build_data(configuration(record)).sizes()))
    path = weights_file(f"{record.row}/{record.instance}", results)
    weights = {key: value.contiguous() for key, value in read_weights(folder, kept).items()}
    write_file(path, save(weights, {"sizes": sizes}))
    write_record(record, path.with_suffix(".json"))
    names = released(results)
    checksums = (f"{sha256(weights_file(name, results))}  {name}.safetensors\n" for name in names)
    write_file(results / "weights" / "SHA256SUMS", "".join(checksums).encode())
    readme = _HEAD + "".join(_line(name, results) for name in names)
    write_file(results / "weights" / "README.md", readme.encode())
    return path


def _verified(name: str, data: Path, results: Path) -> bool:
    name, record, weights, _ = read_released(name, results)
    metric, step = record.result.metric, record.weights["last"]["step"]
    try:
        config = configuration(record, data_in(data, record))
        module = prepare(config)
        compare_data(record, module)
        found = metrics(config, module, weights, step, step)[f"test/{metric}"]
    except MissingDataError as error:
        print(f"{name}: skipped, {error}")
        return True
    return compare(f"{name} {metric}", record.result.last, found)


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
