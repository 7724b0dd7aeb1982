"""The page over HTTP, to this machine alone: the standard library's server and two files more."""

from __future__ import annotations

import errno
import io
import re
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from phantomgrad_suite.dashboard.live import Places, as_json, snapshot
from phantomgrad_suite.runs.errors import UserError

HOST = "127.0.0.1"
_FRESH = 1.0  # seconds for which one look at the files serves all who ask
_HERE = {HOST, "localhost", "[::1]"}
_RULES = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"

Page = tuple[str, Callable[[], bytes]]
"""The type of a page, and what makes it."""


class Server(ThreadingHTTPServer):
    """Serves the live page at ``/``, what it polls at ``/live.json``, and the folder of results.

    Nothing is written: what the page polls is made when it is asked for, at most once a second.

    Args:
        port: where on this machine; 0 for any that is free.
        results: the folder of results, with ``index.html`` and the records.
        places: what is looked at.

    Raises:
        UserError: the port is not free, or not ours to take.
    """

    daemon_threads = True

    def __init__(self, port: int, results: Path, places: Places) -> None:
        pages = _pages(places, results)
        try:
            super().__init__((HOST, port), partial(_Handler, pages, directory=str(results)))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "is in use" if error.errno == errno.EADDRINUSE else "is not for every user"
            raise UserError(
                f"port {port} {why}: choose another (make dashboard PORT=8001)"
            ) from error

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, unless it was a reader who left."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    """Files of the folder of results, and the pages made here; to readers on this machine."""

    def __init__(self, pages: dict[str, Page], *arguments: Any, **settings: Any) -> None:
        self._pages = pages
        super().__init__(*arguments, **settings)

    def send_head(self) -> BinaryIO | io.BytesIO | None:
        """Answer GET and HEAD."""
        if re.sub(r":\d*$", "", self.headers.get("Host", HOST)) not in _HERE:
            # A name that leads here from a page of elsewhere, which may not read this one.
            self.send_error(HTTPStatus.FORBIDDEN, "This page is for this machine alone")
            return None
        page = self._pages.get(urlsplit(self.path).path)
        return super().send_head() if page is None else self._send(*page)

    def _send(self, kind: str, make: Callable[[], bytes]) -> io.BytesIO:
        content = make()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def list_directory(self, path: Any) -> None:
        """Show no folders."""
        self.send_error(HTTPStatus.NOT_FOUND, "There is no such page")

    def end_headers(self) -> None:
        """Let nothing be kept, and no script or style of elsewhere in."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _RULES)
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing of what is read."""


def _pages(places: Places, results: Path) -> dict[str, Page]:
    def live() -> bytes:
        made = (results / "index.html").is_file()
        return as_json({**snapshot(places), "report": made})

    style = _text("report", "templates", "style.css") + _text("dashboard", "page", "live.css")
    return {
        "/": ("text/html", partial(_text, "dashboard", "page", "live.html")),
        "/live.css": ("text/css", lambda: style),
        "/live.js": ("text/javascript", partial(_text, "dashboard", "page", "live.js")),
        "/live.json": ("application/json", _at_most_every(_FRESH, live)),
    }


def _text(*place: str) -> bytes:
    return Path(__file__).resolve().parents[1].joinpath(*place).read_bytes()


def _at_most_every(seconds: float, make: Callable[[], bytes]) -> Callable[[], bytes]:
    """Return ``make``, its result kept for some seconds; readers at the same time share it."""
    lock, kept = threading.Lock(), (0.0, b"")

    def get() -> bytes:
        nonlocal kept
        with lock:
            if not kept[1] or time.monotonic() - kept[0] > seconds:
                kept = time.monotonic(), make()
            return kept[1]

    return get
