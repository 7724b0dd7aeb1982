"""Chromium without a window, spoken to in its own protocol over a pair of pipes."""

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

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
