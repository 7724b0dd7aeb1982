"""The live page over HTTP, for this machine only."""

from __future__ import annotations

import io
import json
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from phantomgrad_suite.dashboard.live import live_state
from phantomgrad_suite.dashboard.plan import Places
from phantomgrad_suite.runs.errors import UserError

_PACKAGE = Path(__file__).resolve().parents[1]
_FILES = {
    "/": _PACKAGE / "dashboard/page/live.html",
    "/live.js": _PACKAGE / "dashboard/page/live.js",
    "/live.css": _PACKAGE / "dashboard/page/live.css",
    "/style.css": _PACKAGE / "report/templates/style.css",
}


class Server(ThreadingHTTPServer):
    """Serves the page, its data (``/live.json``), and the files of the results folder.

    Each request for the data reads the run folders anew. Nothing is written.

    Raises:
        UserError: the port is in use, not allowed or out of range.
    """

    daemon_threads = True

    def __init__(self, port: int, places: Places) -> None:
        try:
            super().__init__(("127.0.0.1", port), partial(_Handler, places))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"cannot serve on port {port} ({reason}): choose another (make dashboard PORT=8001)"
            ) from error

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback, unless the browser merely closed the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, places: Places, *arguments: Any) -> None:
        self._places = places
        super().__init__(*arguments, directory=str(places.records.parent))

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        host = urlsplit(f"//{self.headers.get('Host', 'localhost')}").hostname
        if host not in ("127.0.0.1", "localhost", "::1"):
            # A foreign name that resolves to this machine: its page must not read this one.
            self.send_error(HTTPStatus.FORBIDDEN, "This page is for this machine only")
            return None
        if urlsplit(self.path).path != "/live.json":
            return super().send_head()
        report = Path(self.directory, "index.html").is_file()
        state = {**live_state(self._places), "report": report}
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        return io.BytesIO(json.dumps(state, allow_nan=False).encode())

    def translate_path(self, path: str) -> str:
        return str(_FILES.get(urlsplit(path).path) or super().translate_path(path))

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND, "There is no such page")

    def end_headers(self) -> None:
        policy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass  # the page asks every few seconds
