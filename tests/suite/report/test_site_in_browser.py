"""The page as a browser shows it, from disk: it fits the screen, and its pictures are there."""

import html
import json
import re
import shutil
import subprocess

import pytest
from report.test_page import fill

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

# Appended to the page, which tells the frame that it is shown in what it has measured.
MEASURE = """<script>addEventListener("load", () => {
  const root = document.documentElement, colour = (e, of) =>
    getComputedStyle(e)[of].match(/[\\d.]+/g).map(Number)
  const has_text = e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())
  const spills = e => !e.closest(".scroll, .unseen") && e.getBoundingClientRect().right > innerWidth
  const found = selector => [...document.querySelectorAll(selector)]
  parent.postMessage({
    width: innerWidth,
    fits: root.scrollWidth <= root.clientWidth,
    spilt: found("main *, header *, nav *").filter(spills).map(e => e.outerHTML.slice(0, 80)),
    blank: found("img").filter(image => image.naturalWidth == 0).map(image => image.src),
    background: colour(document.body, "backgroundColor"),
    colours: found("body *").filter(has_text).map(e => colour(e, "color")),
  }, "*")
})</script>"""
FRAMES = """<iframe src="measured.html" width="{width}" height="900" style="border: 0"></iframe>
<pre></pre><script>
  onmessage = event => document.querySelector("pre").textContent = JSON.stringify(event.data)
</script>"""


def luminance(colour: list[float]) -> float:
    """Return the relative luminance of an sRGB colour, as WCAG defines it."""
    parts = [value / 255 for value in colour[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen_and_is_legible(tmp_path, width, scheme) -> None:
    """Wide tables scroll in their own boxes; contrasts are at least 4.5 (WCAG AA)."""
    (tmp_path / "measured.html").write_text(fill(tmp_path).page().html + MEASURE)
    (tmp_path / "frames.html").write_text(FRAMES.format(width=width))
    flags = [f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", "--no-sandbox"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000"]
    page = (tmp_path / "frames.html").as_uri()
    command = [CHROMIUM, "--headless=new", "--disable-gpu", *flags, "--dump-dom", page]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    seen = json.loads(html.unescape(re.findall("<pre>(.*)</pre>", done.stdout)[0]))
    assert (seen["width"], seen["fits"], seen["spilt"], seen["blank"]) == (width, True, [], [])
    background, *colours = map(luminance, [seen["background"], *seen["colours"]])
    assert background < 0.02 if scheme == "dark" else background > 0.9
    pairs = [sorted((background, colour)) for colour in colours]
    assert len(pairs) > 100
    assert all((bright + 0.05) / (dim + 0.05) >= 4.5 for dim, bright in pairs)
