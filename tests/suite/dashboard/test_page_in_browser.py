"""The live page as a browser shows it: it follows the folders, and says when it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dashboard.workshop import Workshop, log, served
from report.browser import CHROMIUM, Browser
from report.test_site_in_browser import COLOURS, FIT, SPILT, luminance

from phantomgrad_suite.dashboard import server as module
from phantomgrad_suite.dashboard.server import Server

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
    pytest.mark.skipif(not Path("/proc/locks").exists(), reason="/proc/locks lists no locks here"),
]

HURRY = "EVERY = 3000"
WORDS = "document.getElementById('words').textContent"
RUNNING = "document.getElementById('running-runs').innerText"
FAILED = "document.getElementById('failed-runs').innerText"
EVIL = "<img src=x onerror=\"document.title='broken in'\"><b>bold</b>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page asks twenty times a second, and is answered anew each time."""
    text = module._text
    assert HURRY.encode() in text("dashboard", "page", "live.js")
    quick = lambda *place: text(*place).replace(HURRY.encode(), b"EVERY = 50")  # noqa: E731
    monkeypatch.setattr(module, "_text", quick)
    monkeypatch.setattr(module, "_FRESH", 0.0)


@pytest.fixture
def page(workshop: Workshop) -> Iterator[Server]:
    with served(workshop) as server:
        yield server


def wait(browser: Browser, script: str, holds: Callable[[str], bool]) -> str:
    """Return what ``script`` says once it ``holds``."""
    deadline = time.monotonic() + 20
    while not holds(said := str(browser.run(script))):
        assert time.monotonic() < deadline, said
    return said


def fill(workshop: Workshop) -> Path:
    """Make a run of every state; return the folder of the one that goes on."""
    running = workshop.running("toy/upg", "seed0", host="gpu07")
    log(running, "0,0.5", "1,0.625")
    workshop.folder("toy/upg", "seed1", failed=f"RuntimeError: {EVIL}")
    log(workshop.folder("toy/implicit", "seed0"), "0,0.5")
    workshop.finished("toy/implicit", "seed1", [0.25, 0.5, None, 0.875])
    return running


def test_running_run_is_followed(browser: Browser, workshop: Workshop, page: Server) -> None:
    running = fill(workshop)
    browser.open(page.url, 1280, 900, "light")
    said = wait(browser, RUNNING, lambda text: "0.6250" in text)
    assert "toy/upg seed0" in said
    assert "epoch 2 of 50" in said
    assert browser.run("document.querySelector('progress').value") == 2
    shape = "document.querySelector('#running svg path').getAttribute('d')"
    before = browser.run(shape)
    browser.run("document.querySelector('#running details').open = true")
    log(running, "0,0.5", "1,0.625", "2,0.75")
    wait(browser, RUNNING, lambda text: "epoch 3 of 50" in text and "0.7500" in text)
    assert browser.run(shape) != before
    assert browser.run("document.querySelector('#running details').open")  # as it was left
    assert "Live" in browser.run(WORDS)
    workshop.held.pop().close()
    (running / "attempt.json").write_text('{"failed": "it was too much", "host": "gpu07"}')
    wait(browser, FAILED, lambda text: "it was too much (gpu07)" in text)
    assert "Nothing is running" in browser.run(RUNNING)


def test_what_comes_from_files_is_text(browser: Browser, workshop: Workshop, page: Server) -> None:
    fill(workshop)
    browser.open(page.url, 1280, 900, "light")
    assert EVIL in wait(browser, FAILED, lambda text: "RuntimeError" in text)
    assert browser.run("document.querySelectorAll('main img, main p b').length") == 0
    assert browser.run("document.title") == "1 running – phantomgrad"  # noqa: RUF001


def test_page_says_that_the_server_is_gone_and_comes_back(
    browser: Browser, workshop: Workshop
) -> None:
    fill(workshop)
    port = 0
    for _ in range(2):
        with served(workshop, port) as server:
            if not port:
                browser.open(server.url, 1280, 900, "light")
            wait(browser, WORDS, lambda text: text.startswith("Live"))
            port = int(server.server_address[1])
        wait(browser, WORDS, lambda text: text.startswith("The server is gone"))
        assert "0.6250" in browser.run(RUNNING)  # what was seen stays
        assert "This is how it stood at" in browser.run("document.getElementById('then').innerText")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_it_fits_the_screen_and_is_legible(
    browser: Browser, workshop: Workshop, page: Server, width: int, height: int, scheme: str
) -> None:
    fill(workshop)
    browser.open(page.url, width, height, scheme)
    wait(browser, RUNNING, lambda text: "0.6250" in text)
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
