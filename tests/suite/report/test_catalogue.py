"""The catalogue: tables described in their own files, and studies, in the order of the page."""

import pytest

from phantomgrad_suite.report.catalogue import CATALOGUE, entry_of
from phantomgrad_suite.runs.configs import CONFIG_PATH
from phantomgrad_suite.runs.errors import UserError


def test_tables_of_runs_and_studies_are_in_one_order():
    assert list(CATALOGUE)[:5] == ["figure1", "table1", "table2", "figure2", "figure3"]
    assert entry_of("table3").heading == "Table 3: DEQ and MDEQ on vision and language"
    assert entry_of("unknown").heading == "Unknown"


def test_a_table_of_the_users_own_is_described_in_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv(CONFIG_PATH, str(tmp_path))
    (tmp_path / "table").mkdir()
    file = tmp_path / "table" / "mine.yaml"
    file.write_text("table: {title: a gradient of my own}\n")
    assert entry_of("mine").heading == "Mine: a gradient of my own"
    file.write_text("table: {colour: red}\n")
    with pytest.raises(UserError, match=r"mine\.yaml: `table` cannot be used: .*'colour'"):
        entry_of("mine")
