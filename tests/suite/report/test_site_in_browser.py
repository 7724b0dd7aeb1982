"""The page as a browser shows it, from disk: it fits the screen, and its pictures are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from report.browser import CHROMIUM, Browser
from report.test_page import fill

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

LOADED = """Promise.all([...document.images].map(async image => {
  image.loading = "eager";
  await image.decode();
  return image.naturalWidth > 0 && image.clientWidth > 0;
}))"""
FIT = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
SPILT = """[...document.querySelectorAll("main *, header *, nav *")].filter(
  e => !e.closest(".scroll, .unseen") && e.getBoundingClientRect().right > innerWidth
).map(e => e.outerHTML.slice(0, 80))"""
COLOURS = """["background-color", "color"].map(
  name => getComputedStyle(document.body).getPropertyValue(name).match(/[\\d.]+/g).map(Number))"""


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
def test_it_fits_the_screen(
    browser: Browser, site: Path, width: int, height: int, scheme: str
) -> None:
    browser.open(site, width, height, scheme)
    assert browser.run("innerWidth") == width
    assert browser.run(LOADED) == [True] * 4
    assert browser.run(FIT)
    assert browser.run(SPILT) == []
    background, ink = map(luminance, browser.run(COLOURS))
    assert background < 0.02 if scheme == "dark" else background > 0.9
    bright, dim = max(background, ink), min(background, ink)
    assert (bright + 0.05) / (dim + 0.05) > 7


def test_a_wide_table_scrolls_in_its_own_box_and_keeps_its_first_column(
    browser: Browser, site: Path
) -> None:
    browser.open(site, 390, 844, "light")
    box = "document.querySelector('#table4 .scroll.wide')"
    assert browser.run(f"{box}.scrollWidth > {box}.clientWidth")
    left = f"{box}.querySelector('tbody th[scope=row]').getBoundingClientRect().left"
    before = browser.run(left)
    browser.run(f"{box}.scrollLeft = 200")
    assert browser.run(f"{box}.scrollLeft") > 0
    assert browser.run(left) == pytest.approx(before, abs=1)
    hint = f"getComputedStyle({box}.nextElementSibling).display"
    assert browser.run(hint) == "block"
    browser.open(site, 1280, 900, "light")
    assert browser.run(hint) == "none"


def test_the_text_is_legible(browser: Browser, site: Path) -> None:
    """Contrast of every text against the page is at least 4.5 (WCAG AA), in both schemes."""
    script = """[...document.querySelectorAll("body *")].filter(
      e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())
    ).map(e => getComputedStyle(e).color.match(/[\\d.]+/g).map(Number))"""
    for scheme in ("light", "dark"):
        browser.open(site, 1280, 900, scheme)
        page = luminance(browser.run(COLOURS)[0])
        for colour in {tuple(c) for c in browser.run(script)}:
            pair = sorted((page, luminance(list(colour))))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (scheme, colour)


def luminance(colour: list[float]) -> float:
    """Return the relative luminance of an sRGB colour, as WCAG defines it."""
    parts = [value / 255 for value in colour[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
