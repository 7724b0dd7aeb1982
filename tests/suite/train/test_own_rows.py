"""The files in docs/extending.md make a row and a table of a user's own, without the checkout."""

import re
import sys
from pathlib import Path

import pytest
import torch
from graph_data import REPOSITORY
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

import phantomgrad as pg
from phantomgrad.diagnostics import estimated_gradient
from phantomgrad_suite.export_wandb import main as export_wandb
from phantomgrad_suite.report.command import main as report
from phantomgrad_suite.runs.configs import CONFIG_PATH, CONFIGS
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.status import status

PAGE = REPOSITORY / "docs" / "extending.md"
MINE, _, TERMS, AGREEMENT, HEAVY = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def own_row(workplace, monkeypatch):
    """The files of the page in a folder of the user's, and the module with their classes."""
    block, *_ = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    # In the comment above each file stands its path.
    _, *parts = re.split(r"^# conf/(\S+\.yaml).*\n", block, flags=re.MULTILINE)
    assert len(parts) == 2 * 5
    for name, content in zip(parts[::2], parts[1::2], strict=True):
        path = workplace.path / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setenv(CONFIG_PATH, "conf")
    module = workplace.path / "mine.py"
    module.write_text(MINE)
    monkeypatch.syspath_prepend(str(workplace.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return module


@pytest.mark.usefixtures("own_row")
def test_every_command_finds_the_row_and_the_table(script, workplace, capsys):
    """They are listed with what finds them again, trained as jobs, counted, reported, exported."""
    listed = script("table=mine", "cluster=list").out.splitlines()
    folder = Path("conf").resolve()
    own = f"env {CONFIG_PATH}={folder} python {script.path} experiment=mine/first seed="
    assert [line.startswith(own) for line in listed] == [True, True]
    assert (
        script("experiment=mine/first", "optimizer.lr=0.05").code == 0
    )  # its row is composed, too
    assert script("table=mine", "cluster=local", "runtime.cluster.jobs=1").code == 0
    assert "skipped" in script("experiment=mine/first").out
    assert status(["--table", "mine"]) == 0
    assert re.search(r"^mine/first +2 +2 ", capsys.readouterr().out, re.MULTILINE)
    published = workplace.path / "published"  # without records, to be quick
    published.mkdir()
    assert report([f"results={published}", "yours=runs/results", "mine"]) == 0
    assert "| mine       | accuracy (%) " in capsys.readouterr().out
    assert export_wandb(["mine"]) == 0
    assert "2 runs; to send them" in capsys.readouterr().out


def test_the_estimator_of_the_page_has_two_terms_of_the_neumann_series(capsys):
    cell = nn.Linear(4, 4, dtype=torch.float64)
    nn.init.normal_(cell.weight, std=0.2)
    f = lambda z: torch.tanh(cell(z))  # noqa: E731
    z = pg.Anderson(tol=1e-12).solve(f, torch.zeros(3, 4, dtype=torch.float64)).z
    page = {"f": f, "z": z, "v": torch.randn_like(z), "parameters": [*cell.parameters()]}
    exec(TERMS + AGREEMENT, page)
    assert 0.5 < float(capsys.readouterr().out) < 1
    neumann = pg.NeumannPhantomGradient(2, 1.0)
    expected = estimated_gradient(f, z, page["v"], neumann, page["parameters"])
    torch.testing.assert_close(page["found"], expected)


def test_the_solver_of_the_page_and_its_file(own_row):
    own_row.write_text(MINE + HEAVY)
    _, file = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    solver = instantiate(OmegaConf.create(file))
    solution = solver.solve(torch.cos, torch.zeros(2, 3))
    assert solution.converged.all()


@pytest.mark.parametrize(
    ("line", "changed", "message"),
    [
        (', "fingerprint": "noise"', "", "facts() of Data must have a fingerprint of the data"),
        (
            "class Data(DataModule):",
            'class Data(DataModule):\n    evaluation_sets = ("test", "validation")\n',
            "val_dataloader must return a loader for each of its evaluation_sets, test, validation",
        ),
    ],
)
def test_data_without_what_a_run_needs_are_refused(workplace, own_row, line, changed, message):
    own_row.write_text(MINE.replace(line, changed))
    with pytest.raises(UserError, match=re.escape(message)):
        workplace.train("experiment=mine/first")


@pytest.mark.parametrize(
    ("file", "variable", "message"),
    [
        (None, "nowhere", f"{CONFIG_PATH} must list folders of configurations, got nowhere"),
        (
            "model/mdeq_tiny.yaml",
            "conf",
            f"conf/model/mdeq_tiny.yaml has the name of a file of {CONFIGS}",
        ),
    ],
)
def test_folders_that_would_be_ignored_are_refused(
    script, own_row, monkeypatch, file, variable, message
):
    monkeypatch.setenv(CONFIG_PATH, variable)
    if file:
        own_row.with_name("conf").joinpath(file).write_text("{}")
    assert script("experiment=mine/first").err.startswith(message)
    with pytest.raises(UserError, match=message):
        status([])


@pytest.mark.parametrize("option", ["--config-dir=conf", "hydra.searchpath=[conf]"])
def test_options_that_jobs_and_reports_would_not_see_are_refused(script, option):
    outcome = script("experiment=mine/first", option)
    assert outcome.code == 1
    assert f"set {CONFIG_PATH}=<folder>, which all of them read" in outcome.err
