"""ImageNet as it is handed out: links to its images, by class; the classes of validation images."""

import csv
from pathlib import Path

from phantomgrad_suite.runs.errors import UserError

_DEVKIT = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
_KAGGLE = "LOC_val_solution.csv"


def link_imagenet(source: Path, folder: Path) -> bool:
    """Link the images that ``source`` holds to ``folder``, by class; return whether it holds any.

    They are in ``imagenet``, in ``ILSVRC/Data/CLS-LOC`` (as in Kaggle's archive) or in ``source``.
    """
    places = (source / place for place in ("imagenet", "ILSVRC/Data/CLS-LOC", ""))
    parts = ([place / "train", place / "val"] for place in places)
    found = next((pair for pair in parts if all(map(Path.is_dir, pair))), None)
    if found is None:
        return False
    train, validation = map(Path.resolve, found)
    folder.mkdir(parents=True)
    (folder / "train").symlink_to(train)
    flat = sorted(validation.glob("*.JPEG"))
    if not flat:
        (folder / "val").symlink_to(validation)
    for path, name in zip(flat, _classes(flat, source), strict=True) if flat else ():
        place = folder / "val" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / path.name).symlink_to(path)
    return True


def _classes(images: list[Path], source: Path) -> list[str]:
    """Return the class (n01440764 ...) of each validation image, by the ground truth."""
    validation, truths = images[0].parent, [source / _DEVKIT, source / _KAGGLE]
    path = next(filter(Path.exists, truths), None)
    if path is None:
        raise UserError(
            f"{validation} has no folder for each class, so its ground truth must be in {source}: "
            f"{_DEVKIT} (with meta.mat) or {_KAGGLE}"
        )
    try:
        known = _read_kaggle(path) if path.name == _KAGGLE else _read_devkit(path)
    except Exception as error:  # a damaged file can raise almost anything
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} cannot be read as the ground truth ({reason})") from error
    if known.keys() != {image.name for image in images}:
        common = sum(image.name in known for image in images)
        raise UserError(
            f"{path} must give the classes of exactly the images in {validation}, got "
            f"{len(known)} classes for {len(images)} images, {common} of them of the same name"
        )
    return [known[image.name] for image in images]


def _read_kaggle(path: Path) -> dict[str, str]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["ImageId"], row["PredictionString"]) for row in csv.DictReader(file)]
    return {f"{image}.JPEG": _checked(boxes.split()[0]) for image, boxes in rows}


def _read_devkit(path: Path) -> dict[str, str]:
    from scipy.io import loadmat

    synsets = loadmat(path.with_name("meta.mat"), squeeze_me=True)["synsets"]
    names = {int(synset["ILSVRC2012_ID"]): _checked(str(synset["WNID"])) for synset in synsets}
    numbers = map(int, path.read_text(encoding="utf-8").split())
    return {f"ILSVRC2012_val_{i:08}.JPEG": names[number] for i, number in enumerate(numbers, 1)}


def _checked(name: str) -> str:
    """Return the name of a class, which becomes that of a folder."""
    if not (name[:1] == "n" and name[1:].isdecimal()):
        raise ValueError(f"a class must be n and digits, got {name!r}")
    return name
