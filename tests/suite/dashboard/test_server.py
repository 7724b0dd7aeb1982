"""The page over HTTP: what is served, to whom, and that it follows the folders."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from dashboard.workshop import Workshop, log, served

from phantomgrad_suite.dashboard import server as module
from phantomgrad_suite.dashboard.server import Server
from phantomgrad_suite.runs.errors import UserError


@pytest.fixture
def page(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "_FRESH", 0.0)
    with served(workshop) as server:
        yield server


def get(server: Server, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def state(server: Server) -> dict[str, Any]:
    answer, content = get(server, "/live.json")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("application/json")
    return dict(json.loads(content))


def test_json_follows_the_folders(workshop: Workshop, page: Server) -> None:
    assert state(page)["states"]["missing"] == 4
    folder = workshop.running("toy/upg", "seed0", host="gpu07")
    log(folder, "0,0.5")
    assert state(page)["runs"][0]["latest"] == {"test/accuracy": 0.5}
    log(folder, "0,0.5", "1,0.75")
    (run,) = state(page)["runs"]
    assert (run["latest"], run["done_epochs"]) == ({"test/accuracy": 0.75}, 2)
    (folder / "attempt.json").write_text('{"failed": "the disk is full"}')
    assert state(page)["runs"][0]["state"] == "failed"


def test_one_look_serves_all_for_a_while(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FRESH", 1000.0)
    with served(workshop) as server:
        first = state(server)
        workshop.folder("toy/upg", "seed0")
        assert state(server) == first


def test_page_and_its_parts(page: Server) -> None:
    for path, kind, said in (
        ("/", "text/html", b'<script src="live.js"'),
        ("/live.js", "text/javascript", b"live.json"),
        ("/live.css", "text/css", b"prefers-color-scheme"),
    ):
        answer, content = get(page, path)
        assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, kind)
        assert said in content
        assert b"http://" not in content.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in content
        assert answer.headers["Cache-Control"] == "no-store"
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def test_results_are_served_and_nothing_beside_them(workshop: Workshop, page: Server) -> None:
    assert state(page)["report"] is False
    assert get(page, "/index.html")[0].status == 404
    (workshop.results / "index.html").write_text("the results")
    assert state(page)["report"] is True
    assert get(page, "/index.html")[1] == b"the results"
    (workshop.results / "records").mkdir()
    assert get(page, "/records/")[0].status == 404  # no lists of files
    assert get(page, "/../configs/train.yaml")[0].status == 404
    assert get(page, "/%2e%2e/configs/train.yaml")[0].status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:80", 200), ("localhost:9000", 200), ("evil.example:80", 403), ("localhost", 200)],
)
def test_only_this_machine_is_answered(page: Server, host: str, status: int) -> None:
    """A name of elsewhere that leads to 127.0.0.1 is none of ours."""
    assert get(page, "/live.json", Host=host)[0].status == status


def test_it_listens_on_this_machine_alone(page: Server) -> None:
    assert page.server_address[0] == "127.0.0.1"
    assert page.url == f"http://127.0.0.1:{page.server_address[1]}/"


def test_port_in_use_is_said_in_a_line(workshop: Workshop, page: Server) -> None:
    port = int(page.server_address[1])
    with pytest.raises(UserError, match=rf"^port {port} is in use: choose another \(make dash"):
        Server(port, workshop.results, workshop.places)
