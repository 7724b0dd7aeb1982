"""The catalogue: tables described in their own files, and studies, in the order of the page."""

import pytest

from phantomgrad_suite.report.catalogue import catalogue, entry_of
from phantomgrad_suite.runs.configs import CONFIG_PATH
from phantomgrad_suite.runs.errors import UserError


def own_file(folder, monkeypatch, content):
    monkeypatch.setenv(CONFIG_PATH, str(folder))
    (folder / "table").mkdir(parents=True)
    (folder / "table" / "mine.yaml").write_text(content, encoding="utf-8")


def test_a_table_of_the_users_own_is_described_in_its_file(tmp_path, monkeypatch):
    """As those of the checkout are, of which one may have another name than its rows."""
    own_file(tmp_path / "a", monkeypatch, "table: {title: a gradient of my own}\n")
    assert entry_of("mine").heading == "Mine: a gradient of my own"
    own_file(tmp_path / "b", monkeypatch, "table: {key: ours, title: gradients}\n")
    assert entry_of("ours").heading == "Ours: gradients"
    assert [*catalogue()].index("ours") > [*catalogue()].index("torchdeq")
    own_file(tmp_path / "c", monkeypatch, "table: {key: table1, title: with a row of mine}\n")
    assert entry_of("table1").title == "Ablation settings on CIFAR-10"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{colour: red}", ": `table` cannot be used: .*'colour'"),
        ("red", ": `table` cannot be used: "),
        ("[", " is not YAML: while parsing"),
    ],
)
def test_a_wrong_description_is_named(tmp_path, monkeypatch, entry, problem):
    own_file(tmp_path / "conf", monkeypatch, f"table: {entry}\n")
    with pytest.raises(UserError, match=rf"mine\.yaml{problem}"):
        entry_of("mine")
