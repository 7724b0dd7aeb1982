"""The page as a browser shows it, from disk: it fits the screen, and its pictures are there."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from report.test_page import fill

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_SECONDS = 30


class Browser:
    """One page of one browser, in a profile of its own."""

    def __init__(self, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        # The protocol wants its pipes at 3 and 4, wherever they were opened here.
        shell = ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{ours[1]}', "bash"]
        self._process = subprocess.Popen(
            [*shell, str(CHROMIUM), *flags, "about:blank"],
            pass_fds=(theirs[0], ours[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs[0])
        os.close(ours[1])
        self._read, self._write = ours[0], theirs[1]
        self._buffer, self._count, self._session = b"", 0, ""
        try:
            self._attach()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _attach(self) -> None:
        pages = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in pages if target["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        self.send("Browser.close")
        self._process.wait(_SECONDS)
        os.close(self._read)
        os.close(self._write)

    def send(self, method: str, **params: Any) -> Any:
        """Send a command; return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._count:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, page: Path | str, width: int, height: int, scheme: str) -> None:
        """Open a page, from disk or by its address, on a screen of this size and scheme."""
        address = page if isinstance(page, str) else page.as_uri()
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone},
        )
        self.send("Page.navigate", url=address)
        deadline = time.monotonic() + _SECONDS
        ready = f"document.readyState == 'complete' && location.href == {address!r}"
        while not self.run(ready):
            assert time.monotonic() < deadline, f"{page} does not load"

    def run(self, script: str) -> Any:
        """Return the value of an expression on the page, a promise awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], _SECONDS)[0], "the browser is silent"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer


pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

FIT = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
SPILT = """[...document.querySelectorAll("main *, header *, nav *")].filter(
  e => !e.closest(".scroll, .unseen") && e.getBoundingClientRect().right > innerWidth
).map(e => e.outerHTML.slice(0, 80))"""
COLOURS = """(texts => [getComputedStyle(document.body).backgroundColor].concat(
  texts.map(e => getComputedStyle(e).color)).map(c => c.match(/[\\d.]+/g).map(Number))
)([...document.querySelectorAll("body *")].filter(
  e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = fill(tmp_path_factory.mktemp("results"))
    (results.path / "index.html").write_text(results.page().html, encoding="utf-8")
    return results.path / "index.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_it_fits_the_screen_and_is_legible(browser, site, width, height, scheme) -> None:
    """Wide tables scroll in their own boxes; contrasts are at least 4.5 (WCAG AA)."""
    browser.open(site, width, height, scheme)
    assert browser.run("innerWidth") == width
    assert browser.run("[...document.images].every(image => image.naturalWidth > 0)")
    assert browser.run(FIT)
    assert browser.run(SPILT) == []
    background, *colours = (luminance(colour) for colour in browser.run(COLOURS))
    assert background < 0.02 if scheme == "dark" else background > 0.9
    pairs = [sorted((background, colour)) for colour in colours]
    assert all((bright + 0.05) / (dim + 0.05) >= 4.5 for dim, bright in pairs)


def luminance(colour: list[float]) -> float:
    """Return the relative luminance of an sRGB colour, as WCAG defines it."""
    parts = [value / 255 for value in colour[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
