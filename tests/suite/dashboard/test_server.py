"""The live page over HTTP: what is served, and to whom."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest
from dashboard.conftest import Workshop, log

from phantomgrad_suite.dashboard.server import Server
from phantomgrad_suite.runs.errors import UserError


def get(server: Server, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def state(server: Server) -> dict[str, Any]:
    answer, content = get(server, "/live.json")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    return dict(json.loads(content))


def test_data_follow_the_folders(workshop: Workshop, page: Server) -> None:
    assert state(page)["states"]["missing"] == 4
    folder = workshop.start("toy/upg", "seed0", host="gpu07")
    for value in ("0.5", "0.75"):
        log(folder, f"0,{value}")
        assert state(page)["runs"][0]["latest"] == {"test/accuracy": value}


@pytest.mark.parametrize(
    ("path", "kind", "content"),
    [
        ("/", "text/html", b'<script src="live.js"'),
        ("/live.js", "text/javascript", b"live.json"),
        ("/live.css", "text/css", b"prefers-color-scheme"),
        ("/style.css", "text/css", b"--paper"),
    ],
)
def test_page_and_its_parts(page: Server, path: str, kind: str, content: bytes) -> None:
    answer, served = get(page, path)
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, kind)
    assert content in served
    own = served.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"://" not in own  # nothing from elsewhere
    assert answer.headers["Cache-Control"] == "no-store"
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def test_results_are_served_and_no_other_folder(workshop: Workshop, page: Server) -> None:
    assert state(page)["report"] is False
    assert get(page, "/index.html")[0].status == 404
    (workshop.results / "index.html").write_text("the results")
    assert state(page)["report"] is True
    assert get(page, "/index.html")[1] == b"the results"
    (workshop.results / "records").mkdir()
    for path in ("/records/", "/../configs/train.yaml", "/%2e%2e/configs/train.yaml"):
        assert get(page, path)[0].status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:80", 200), ("localhost:9000", 200), ("evil.example", 403)],
)
def test_only_this_machine_is_answered(page: Server, host: str, status: int) -> None:
    """A foreign name that resolves to 127.0.0.1 is refused."""
    assert page.server_address[0] == "127.0.0.1"
    assert get(page, "/live.json", Host=host)[0].status == status


def test_port_in_use(workshop: Workshop, page: Server) -> None:
    port = int(page.server_address[1])
    with pytest.raises(UserError, match=rf"^cannot serve on port {port} \(Address already in use"):
        Server(port, workshop.places)
