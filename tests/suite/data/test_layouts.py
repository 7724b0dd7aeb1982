"""Fetching from the layouts in which data are handed out: the hub's parquet files, ImageNet."""

import shutil

import numpy as np
import pytest
from pyarrow import parquet, table
from scipy.io import savemat
from text_data import write_texts

from phantomgrad_suite.data import ImageNet, WikiText103
from phantomgrad_suite.data import fetch as fetching
from phantomgrad_suite.data.fetch import fetch
from phantomgrad_suite.runs.errors import MissingDataError, UserError

pytestmark = pytest.mark.usefixtures("float32")
PARTS = {"train": "train", "validation": "valid", "test": "test"}


@pytest.fixture
def target(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A folder with the original files of small texts, in which a word is unknown."""
    write_texts(tmp_path / "texts" / "wikitext-103")
    for path in (tmp_path / "texts" / "wikitext-103").iterdir():
        path.write_text(path.read_text().replace("w99", "<unk>"))
        part = next(part for part, name in PARTS.items() if name in path.name)
        tokens = len(path.read_text().split()) + path.read_text().count("\n")
        monkeypatch.setitem(fetching.TOKENS, part, tokens)
    return tmp_path / "texts"


@pytest.fixture
def hub(texts, tmp_path):
    """Writes the same texts as the hub has them: a row a line, the training text in two files."""

    def write(variant, change=str):
        folder = tmp_path / "hub" / variant
        folder.mkdir(parents=True)
        for part, name in PARTS.items():
            lines = (texts / "wikitext-103" / f"wiki.{name}.tokens").read_text().split("\n")[:-1]
            rows = [change(f"{line}\n") if line.strip() else "" for line in lines]
            count = 2 if part == "train" else 1
            for i, rows_of_file in enumerate(np.array_split(rows, count)):
                path = folder / f"{part}-{i:05}-of-{count:05}.parquet"
                parquet.write_table(table({"text": rows_of_file.tolist()}), path)
        return folder

    return write


@pytest.mark.parametrize("inside", [True, False])
def test_texts_come_from_parquet_files(texts, hub, target, tmp_path, inside):
    folder = hub("wikitext-103-v1")
    found = fetch("WikiText103", target, folder if inside else folder.parent)
    assert found == f"wikitext103: texts of 101 words in {target / 'wikitext-103'}"
    fetch("WikiText103", tmp_path / "files", texts)
    a, b = (WikiText103(root=str(root)).facts() for root in (target, tmp_path / "files"))
    assert a == b


def test_raw_texts_are_refused(hub, target):
    folder = hub("wikitext-103-raw-v1", lambda line: line.replace("<unk>", "word"))
    message = (
        rf"^{folder} has a test text without <unk>, .* a model of words needs wikitext-103-v1$"
    )
    for source in (folder, folder.parent):
        with pytest.raises(UserError, match=message):
            fetch("WikiText103", target, source)
    assert list(target.iterdir()) == []


def test_incomplete_or_damaged_parquet_files_are_refused(hub, target):
    folder = hub("wikitext-103-v1")
    (folder / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(
        UserError, match=r"train.tokens has \d+ tokens, .* has \d+: nothing was inst"
    ):
        fetch("WikiText103", target, folder)
    path = folder / "train-00000-of-00002.parquet"
    parquet.write_table(table({"page": ["a"]}), path)
    with pytest.raises(UserError, match=f"^{path} cannot be read as a text"):
        fetch("WikiText103", target, folder)
    path.write_bytes(b"PAR1")
    with pytest.raises(UserError, match=f"^{path} cannot be read as a text"):
        fetch("WikiText103", target, folder)
    path.unlink()
    with pytest.raises(UserError, match=r"WikiText-103 lacks .*wiki.train.tokens: nothing was"):
        fetch("WikiText103", target, folder)


def test_imagenet_is_found_or_explained(folder_root, target):
    with pytest.raises(
        MissingDataError, match=r"image-net.org .*--from DIR` links DIR/train/<class>"
    ):
        fetch("ImageNet", target)
    (target / "imagenet").symlink_to(folder_root)
    found = "ImageNet: 12 training and 5 test images in"
    assert fetch("ImageNet", target) == f"{found} {target / 'imagenet'} (already there)"


@pytest.mark.parametrize("place", ["imagenet", "ILSVRC/Data/CLS-LOC", "."])
def test_images_in_class_folders_are_linked(folder_root, target, tmp_path, place):
    source = tmp_path / "source"
    shutil.copytree(folder_root, source / place)
    fetch("ImageNet", target, source)
    assert (target / "imagenet" / "train").is_symlink()
    linked = ImageNet(root=str(target / "imagenet")).facts()
    assert linked == ImageNet(root=str(folder_root)).facts()


NAMES = [f"n{label:08}" for label in (2, 0, 1, 0, 2)]  # the classes of the validation images


def write_devkit(folder, names=NAMES):
    """Write the official ground truth: numbers that ``meta.mat`` explains, not in their order."""
    data = folder / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True, exist_ok=True)
    numbers = {name: number for number, name in enumerate(sorted(set(NAMES), reverse=True), 1)}
    synsets = [(number, name, "words, more") for name, number in numbers.items()]
    synsets.append((4, "n99999999", "a synset of classes"))
    kinds = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object)]
    savemat(data / "meta.mat", {"synsets": np.array(synsets, dtype=kinds)})
    truth = "".join(f"{numbers[name]}\n" for name in names)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text(truth)


def write_kaggle(folder, names=NAMES):
    rows = [
        f"ILSVRC2012_val_{i:08},{name} 1 2 3 4 {name} 5 6 7 8 " for i, name in enumerate(names, 1)
    ]
    text = "\n".join(["ImageId,PredictionString", *reversed(rows), ""])
    (folder / "LOC_val_solution.csv").write_text(text)


@pytest.fixture
def flat(folder_root, tmp_path):
    """ImageNet with all validation images in one folder."""
    source = tmp_path / "flat"
    shutil.copytree(folder_root / "train", source / "train")
    images = sorted((folder_root / "val").glob("*/*.JPEG"))
    (source / "val").mkdir()
    for i, path in enumerate(images, 1):
        shutil.copy(path, source / "val" / f"ILSVRC2012_val_{i:08}.JPEG")
    return source


@pytest.mark.parametrize("write", [write_devkit, write_kaggle])
def test_flat_validation_images_are_linked_by_their_ground_truth(flat, target, write):
    write(flat)
    fetch("ImageNet", target, flat)
    data = ImageNet(root=str(target / "imagenet"), workers=0, test_batch_size=5)
    for path, label in data._parts["test"]:
        number = int(path.removesuffix(".JPEG")[-8:])
        assert f"n{label:08}" == NAMES[number - 1]
    assert (target / "imagenet/val/n00000001/ILSVRC2012_val_00000003.JPEG").read_bytes() == (
        flat / "val/ILSVRC2012_val_00000003.JPEG"
    ).read_bytes()
    (batch,) = data.val_dataloader()[0]
    assert len(batch.labels) == 5


def test_flat_validation_images_need_their_ground_truth(flat, target):
    """A part of it, a damaged one, or one with names that leave the folder is refused."""
    with pytest.raises(UserError, match=rf"ground truth must be in {flat}: ILSVRC2012_devkit_t12"):
        fetch("ImageNet", target, flat)
    write_kaggle(flat, NAMES[:4])
    with pytest.raises(UserError, match="got 4 classes for 5 images, 4 of them of the same name"):
        fetch("ImageNet", target, flat)
    write_kaggle(flat, [*NAMES[:4], "../../evil"])
    with pytest.raises(UserError, match=r"solution.csv cannot be read .*digits, got '../../evil'"):
        fetch("ImageNet", target, flat)
    write_devkit(flat)
    (flat / "ILSVRC2012_devkit_t12/data/meta.mat").unlink()
    with pytest.raises(UserError, match=r"ground_truth.txt cannot be read as the ground truth \("):
        fetch("ImageNet", target, flat)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("place", [".", "imagenet"])
def test_images_are_not_linked_to_themselves(flat, place):
    write_kaggle(flat)
    data = flat.rename(flat.with_name("imagenet")).parent
    with pytest.raises(UserError, match=rf"--from must be another folder than {data} and"):
        fetch("ImageNet", data, data / place)
    assert len(list((data / "imagenet" / "val").iterdir())) == 5
