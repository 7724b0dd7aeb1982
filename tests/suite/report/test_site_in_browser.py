"""The page as a browser shows it, from disk: it fits the screen, and its pictures are there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from report.browser import CHROMIUM, Browser
from report.test_page import fill

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
def test_it_fits_the_screen_and_is_legible(
    browser: Browser, site: Path, width: int, height: int, scheme: str
) -> None:
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
