"""Trained models that the repository publishes: released, loaded, and verified on their data.

A model is ``results/weights/<row>/<instance>.safetensors``, the weights after the last epoch of a
run, with the run's record next to it as ``.json``. The header of the weights holds the sizes that
the model took from the data, so that it can be built without them.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from phantomgrad_suite.evaluate import TOLERANCE, metrics
from phantomgrad_suite.jobs.build import build, build_data
from phantomgrad_suite.jobs.trained import configuration, read_run, read_weights
from phantomgrad_suite.runs.errors import MissingDataError, UserError
from phantomgrad_suite.runs.files import atomic_write
from phantomgrad_suite.runs.records import Record, read_record, write_record
from phantomgrad_suite.train import prepare

RESULTS = Path(__file__).resolve().parents[2] / "results"


def load_model(name: str, results: Path = RESULTS) -> nn.Module:
    """Return a released model in evaluation mode, on the CPU; no data are needed.

    Args:
        name: row and instance, ``"digits/upg_k5_d0.5/seed0"``; the row alone if one instance of it
            is released.
        results: the folder of results, by default that of the checkout.

    Raises:
        UserError: there is no such model, or its file is not that of ``SHA256SUMS``.
    """
    name = _full_name(name, results)
    weights, sizes = _read(name, results)
    config = OmegaConf.create(_record(name, results).config)
    model: nn.Module = build(config.model, "model", **sizes)
    model.load_state_dict(weights)
    return model.eval()


def verify(names: Sequence[str] = (), data: Path = Path("data"), results: Path = RESULTS) -> bool:
    """Evaluate released models on the data in ``data``; return whether all give recorded values.

    Prints a line for each. Models whose data are missing are skipped.
    """
    agree = [_verified(name, data, results) for name in names or released(results)]
    return all(agree)


def released(results: Path = RESULTS) -> list[str]:
    """Return the names of all released models."""
    folder = results / "weights"
    files = sorted(folder.rglob("*.safetensors"))
    return [file.relative_to(folder).with_suffix("").as_posix() for file in files]


def release(folder: Path, results: Path = RESULTS) -> Path:
    """Publish weights and record of a finished run; rewrite checksums and cards."""
    record = read_run(folder)
    kept = record.weights["last"]
    if str(record.environment.get("git")).endswith("+dirty"):
        raise UserError(f"{folder} was made from a changed checkout: nobody could repeat it")
    sizes = json.dumps(dict(build_data(configuration(record)).sizes()))
    path = results / "weights" / record.row / f"{record.instance}.safetensors"
    weights = {key: value.contiguous() for key, value in read_weights(folder, kept).items()}
    with atomic_write(path) as temporary:
        temporary.write_bytes(save(weights, {"sizes": sizes}))
    write_record(record, path.with_suffix(".json"))
    names = released(results)
    checksums = (f"{_sha256(_file(name, results))}  {name}.safetensors\n" for name in names)
    with atomic_write(results / "weights" / "SHA256SUMS") as temporary:
        temporary.write_text("".join(checksums))
    with atomic_write(results / "weights" / "README.md") as temporary:
        temporary.write_text(_CARDS + "".join(_card(name, results) for name in names))
    return path


def _verified(name: str, data: Path, results: Path) -> bool:
    name = _full_name(name, results)
    record, (weights, _) = _record(name, results), _read(name, results)
    metric, recorded = record.result.metric, record.result.last
    step = record.weights["last"]["step"]
    try:
        config = configuration(record, _data_in(data, record))
        found = metrics(config, prepare(config), weights, step)[f"test/{metric}"]
    except MissingDataError as error:
        print(f"{name}: skipped, {error}")
        return True
    same = math.isclose(found, recorded, rel_tol=TOLERANCE)
    values = f"recorded {recorded:.8g}, recomputed {found:.8g}"
    print(f"{name}: {metric} {values}{'' if same else ': they differ'}", flush=True)
    return same


def _data_in(folder: Path, record: Record) -> list[str]:
    """Return the override with which a run finds its data, if it reads any, in ``folder``."""
    runtime = record.config["runtime"]
    root = runtime["dataset"].get("root")
    if root is None:
        return []
    return [f"runtime.dataset.root={folder / Path(root).relative_to(runtime['paths']['data'])}"]


def _full_name(name: str, results: Path) -> str:
    names = released(results)
    if not names:
        raise UserError(f"{results / 'weights'} holds no models: load_model needs a checkout")
    found = [known for known in names if name in (known, known.rpartition("/")[0])]
    if len(found) != 1:
        what = f"{name} is several models" if found else f"there is no released model {name!r}"
        raise UserError(f"{what}: choose from {', '.join(found or names)}")
    return found[0]


def _file(name: str, results: Path) -> Path:
    return results / "weights" / f"{name}.safetensors"


def _record(name: str, results: Path) -> Record:
    return read_record(_file(name, results).with_suffix(".json"))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(name: str, results: Path) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return the weights of a model, and the arguments that its constructor takes from the data."""
    path = _file(name, results)
    if f"{_sha256(path)}  {name}.safetensors" not in _checksums(results):
        raise UserError(f"{path} is not the file whose checksum weights/SHA256SUMS has")
    with safe_open(path, "pt") as file:
        sizes = json.loads(file.metadata()["sizes"])
        return {key: file.get_tensor(key) for key in file.keys()}, sizes  # noqa: SIM118


def _checksums(results: Path) -> list[str]:
    return (results / "weights" / "SHA256SUMS").read_text().splitlines()


_CARDS = """# Released models

Small models, for tests and examples. `make verify` evaluates each of them again and compares with
its record; it skips those whose data are not in `data/`. A record has the configuration of its run.

```python
from phantomgrad_suite import load_model

model = load_model("digits/upg_k5_d0.5")  # in evaluation mode; no data are needed
```
"""


def _card(name: str, results: Path) -> str:
    record = _record(name, results)
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
| File | `{name}.safetensors`, {_file(name, results).stat().st_size / 1e3:,.0f} kB |
| SHA-256 | `{_sha256(_file(name, results))}` |
| Record | [{name}.json]({name}.json) |
"""
