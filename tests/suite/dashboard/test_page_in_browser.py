"""The live page as a browser shows it: it follows the folders, and says when it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dashboard.conftest import Workshop, log
from report.browser import CHROMIUM, Browser
from report.test_site_in_browser import COLOURS, FIT, SPILT, luminance

from phantomgrad_suite.dashboard import server as module
from phantomgrad_suite.dashboard.server import Server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

INTERVAL = "INTERVAL = 3000"
CONNECTION = "document.getElementById('connection').innerText"
RUNNING = "document.getElementById('running-runs').innerText"
FAILED = "document.getElementById('failed-runs').innerText"
EVIL = "<img src=x onerror=\"document.title='broken in'\"><b>bold</b>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page asks twenty times a second."""
    script = module._FILES["/live.js"].read_text()
    assert INTERVAL in script
    (tmp_path / "live.js").write_text(script.replace(INTERVAL, "INTERVAL = 50"))
    monkeypatch.setitem(module._FILES, "/live.js", tmp_path / "live.js")


def wait(browser: Browser, script: str, holds: Callable[[str], bool]) -> str:
    """Return the text of ``script`` once it ``holds``."""
    deadline = time.monotonic() + 20
    while not holds(text := str(browser.run(script))):
        assert time.monotonic() < deadline, text
    return text


def fill(workshop: Workshop) -> Path:
    """Make a run of every state; return the folder of the running one."""
    running = workshop.start("toy/upg", "seed0", host="gpu07")
    log(running, "0,0.5", "1,0.625")
    workshop.start("toy/upg", "seed1", failed=f"RuntimeError: {EVIL}")
    log(workshop.start("toy/implicit", "seed0"), "0,0.5")
    workshop.finished("toy/implicit", "seed1", [0.25, 0.5, None, 0.875])
    return running


def test_running_run_is_followed(browser: Browser, workshop: Workshop, page: Server) -> None:
    running = fill(workshop)
    browser.open(page.url, 1280, 900, "light")
    text = wait(browser, RUNNING, lambda text: "0.625" in text)
    assert "toy/upg seed0" in text
    assert "epoch 2 of 50" in text
    assert browser.run("document.querySelector('progress').value") == 2
    shape = "document.querySelector('#running svg path').getAttribute('d')"
    before = browser.run(shape)
    browser.run("document.querySelector('#running details').open = true")
    log(running, "0,0.5", "1,0.625", "2,0.75")
    wait(browser, RUNNING, lambda text: "epoch 3 of 50" in text and "0.75" in text)
    assert browser.run(shape) != before
    assert browser.run("document.querySelector('#running details').open")  # stays open
    assert "Live" in browser.run(CONNECTION)
    (running / "attempt.json").write_text('{"failed": "out of memory", "host": "gpu07"}')
    wait(browser, FAILED, lambda text: "out of memory" in text and "(gpu07)" in text)
    assert "Nothing is running" in browser.run(RUNNING)


def test_what_comes_from_files_is_text(browser: Browser, workshop: Workshop, page: Server) -> None:
    fill(workshop)
    browser.open(page.url, 1280, 900, "light")
    assert EVIL in wait(browser, FAILED, lambda text: "RuntimeError" in text)
    assert browser.run("document.querySelectorAll('main img, main p b').length") == 0
    assert browser.run("document.title") == "1 running – phantomgrad"  # noqa: RUF001


def test_stopped_server_is_reported_until_it_is_back(browser: Browser, workshop: Workshop) -> None:
    fill(workshop)
    port = 0
    for _ in range(2):
        with workshop.served(port) as server:
            if not port:
                browser.open(server.url, 1280, 900, "light")
            wait(browser, CONNECTION, lambda text: text.startswith("Live"))
            port = int(server.server_address[1])
        text = wait(browser, CONNECTION, lambda text: text.startswith("The server has stopped"))
        assert "Last state, of" in text
        assert "0.625" in browser.run(RUNNING)  # the last state stays


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_it_fits_the_screen_and_is_legible(
    browser: Browser, workshop: Workshop, page: Server, width: int, height: int, scheme: str
) -> None:
    fill(workshop)
    browser.open(page.url, width, height, scheme)
    wait(browser, RUNNING, lambda text: "0.625" in text)
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.run("innerWidth") == width
    assert browser.run(FIT)
    assert browser.run(SPILT) == []
    paper = luminance(browser.run(COLOURS)[0])
    texts = """[...document.querySelectorAll("body *")].filter(
      e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())
    ).map(e => getComputedStyle(e).color.match(/[\\d.]+/g).map(Number))"""
    for colour in {tuple(c) for c in browser.run(texts)}:
        dim, bright = sorted((paper, luminance(list(colour))))
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, colour
