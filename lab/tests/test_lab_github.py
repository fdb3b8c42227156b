"""The client of the GitHub API, against a server on the loopback that answers as the API does."""

from __future__ import annotations

import datetime
import json
import statistics
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from nervure_lab.toolchain import LAB_DIRECTORY
from nervure_lab.tsc import repositories
from nervure_lab.tsc.github import API, Client, GitHubError
from nervure_lab.tsc.source import Source

DATA = Path(__file__).parent / "data" / "github"
NOW = datetime.datetime(2026, 11, 25, tzinfo=datetime.timezone.utc)
SINCE = NOW - datetime.timedelta(days=180)
Answer = tuple[int, dict[str, str], bytes]


def entry(number: int, opened: str, closed: str | None = None, pull: bool = False) -> dict[str, Any]:
    """An issue with the fields of the API that matter here, and some that do not."""
    found = {
        "url": f"https://api.github.com/repos/owner/name/issues/{number}",
        "number": number,
        "state": "closed" if closed else "open",
        "title": "A title",
        "created_at": opened,
        "updated_at": opened,
        "closed_at": closed,
        "comments": 0,
    }
    return found | ({"pull_request": {"merged_at": closed}} if pull else {})


class Api:
    """Answers each request with `answer`, and keeps paths and headers."""

    def __init__(self) -> None:
        self.answer: Callable[[str], Answer] = lambda path: (200, {}, b"[]")
        self.requests: list[tuple[str, dict[str, str]]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.requests.append((self.path, dict(self.headers)))
                status, headers, body = api.answer(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    thread = threading.Thread(target=api.server.serve_forever)
    thread.start()
    yield api
    api.server.shutdown()
    thread.join()
    api.server.server_close()


def pages(api: Api, *content: list[dict[str, Any]]) -> None:
    def answer(path: str) -> Answer:
        at = int(path.partition("&page=")[2] or 1) - 1
        link = {}
        if at + 1 < len(content):
            following = f"{api.url}/repos/owner/name/issues?state=all&page={at + 2}"
            link = {
                "Link": f'<{api.url}/x>; rel="prev", <{following}>; rel="next", <{following}>; rel="last"'
            }
        return 200, link, json.dumps(content[at]).encode()

    api.answer = answer


def test_items_of_all_pages_within_the_window(api: Api) -> None:
    pages(
        api,
        [
            entry(5, "2026-11-20T00:00:00Z"),
            entry(4, "2026-11-01T00:00:00Z", "2026-11-01T12:00:00Z", pull=True),
        ],
        # An issue that was opened between the requests has moved this one to the second page, too.
        [
            entry(4, "2026-11-01T00:00:00Z", "2026-11-01T12:00:00Z", pull=True),
            entry(3, "2026-06-01T00:00:00Z"),
        ],
        [entry(2, "2026-05-01T00:00:00Z"), entry(1, "2025-01-01T00:00:00Z")],
        [entry(0, "2024-01-01T00:00:00Z")],
    )
    items = Client("secret", api.url).items("owner/name", SINCE)
    assert [item.number for item in items] == [5, 4, 3]
    assert [item.is_pull for item in items] == [False, True, False]
    assert items[1].closed - items[1].opened == datetime.timedelta(hours=12)
    assert len(api.requests) == 3, "the page after the window is not requested"
    path, headers = api.requests[0]
    assert path == "/repos/owner/name/issues?state=all&sort=created&direction=desc&per_page=100"
    assert headers["Authorization"] == "Bearer secret"


def replay(api: Api, name: str) -> None:
    """Answers as GitHub did when the file was recorded, but names this server in `Link`. The first page
    answers any query.
    """
    recorded = json.loads((DATA / "recorded" / f"{name}.json").read_text())
    answers = {page["path"]: page for page in recorded}
    first = recorded[0]

    def answer(path: str) -> Answer:
        is_first = path.partition("?")[0] == first["path"].partition("?")[0]
        page = first if is_first else answers[path]
        headers = {name: text.replace(API, api.url) for name, text in page["headers"].items()}
        return page["status"], headers, json.dumps(page["body"]).encode()

    api.answer = answer


def test_the_recorded_issues_of_a_repository(api: Api) -> None:
    replay(api, "all-issues")
    everything = datetime.datetime(2013, 1, 1, tzinfo=datetime.timezone.utc)
    items = Client("secret", api.url).items("betamaxpy/betamax", everything)
    pulls, issues = [it for it in items if it.is_pull], [it for it in items if not it.is_pull]
    assert (len(pulls), len(issues)) == (67, 83)
    hours = [
        [(it.closed - it.opened).total_seconds() / 3600 for it in kind if it.closed]
        for kind in (pulls, issues)
    ]
    assert [len(kind) for kind in hours] == [64, 70]
    assert [round(statistics.median(kind), 2) for kind in hours] == [11.65, 161.75]
    assert [request[0].partition("?")[0] for request in api.requests] == [
        "/repos/betamaxpy/betamax/issues",
        "/repositories/11439734/issues",
    ]
    # The window ends within the first page, so the second one is not requested.
    half_a_year = datetime.datetime(2017, 7, 1, tzinfo=datetime.timezone.utc)
    assert len(Client("secret", api.url).items("betamaxpy/betamax", half_a_year)) == 10
    assert len(api.requests) == 3


def test_recorded_pages_are_followed_to_the_last(api: Api) -> None:
    replay(api, "small-pages")
    repository = "octokit-fixture-org/tmp-scenario-paginate-issues-20220719043836917-izyoe"
    everything = datetime.datetime(2022, 1, 1, tzinfo=datetime.timezone.utc)
    items = Client("secret", api.url).items(repository, everything)
    assert [item.number for item in items] == list(range(13, 0, -1))
    assert len(api.requests) == 5


def written(name: str) -> bytes:
    return (DATA / f"{name}.json").read_bytes()


def test_answers_with_every_documented_field(api: Api) -> None:
    """The files of ``data/github``: a draft, a merged and a rejected pull request, issues of each kind."""
    pages(api, json.loads(written("issues-page-1")), json.loads(written("issues-page-2")))
    items = {item.number: item for item in Client("secret", api.url).items("octo-robotics/middleware", SINCE)}
    assert list(items) == [412, 411, 410, 409, 408], "one stands on both pages, one is before the window"
    assert [number for number, item in items.items() if item.is_pull] == [412, 411, 409]
    assert [number for number, item in items.items() if item.closed is None] == [412, 408]
    hours = {n: (it.closed - it.opened).total_seconds() / 3600 for n, it in items.items() if it.closed}
    assert hours == {411: 6.5, 410: 25.0, 409: 48.0}


def test_documented_errors_say_what_to_do(api: Api) -> None:
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1764064800"}
    api.answer = lambda path: (403, headers, written("rate-limited"))
    with pytest.raises(GitHubError, match="rate limit is used up; it allows more from 10:00:00 UTC on"):
        Client("secret", api.url).items("owner/name", SINCE)
    api.answer = lambda path: (401, {}, written("bad-credentials"))
    with pytest.raises(GitHubError, match="refuses the token in GITHUB_TOKEN"):
        Client("secret", api.url).items("owner/name", SINCE)


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (401, {}, b"{}", "owner/name: the API refuses the token in GITHUB_TOKEN"),
        (404, {}, b"{}", "owner/name: there is no such repository"),
        (500, {}, b"{}", "owner/name: the API answers 500"),
        (403, {}, b"{}", "the token may not read this repository"),
        # Recorded in 2021, as in the cassette CheckApp_create_check_run of github3.py.
        (
            403,
            {"X-RateLimit-Remaining": "4996", "X-RateLimit-Reset": "1634671072"},
            b'{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest"}',
            "the token may not read this repository",
        ),
        (
            403,
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1764064800"},
            b"{}",
            "rate limit is used up; it allows more from 10:00:00 UTC on",
        ),
        (429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 30}, b"{}", "rate limit is used up$"),
        (302, {"Location": "https://elsewhere.invalid/"}, b"", "the API answers 302"),
        (200, {}, b"<html>", "owner/name: expected JSON from the API"),
        (200, {}, b'{"message": "no"}', "expected a list of issues from the API"),
        (200, {}, b'[{"number": 1}]', "expected an issue with number, created_at and closed_at"),
        (200, {"Link": '<https://elsewhere.invalid/2>; rel="next"'}, b"[]", "next page on another host"),
    ],
)
def test_errors_say_what_to_do(
    api: Api, status: int, headers: dict[str, str], body: bytes, message: str
) -> None:
    api.answer = lambda path: (status, headers, body)
    with pytest.raises(GitHubError, match=message):
        Client("secret", api.url).items("owner/name", SINCE)


def test_endless_pages_end(api: Api) -> None:
    api.answer = lambda path: (200, {"Link": f'<{api.url}/more>; rel="next"'}, b"[]")
    with pytest.raises(GitHubError, match="more than 100 pages"):
        Client("secret", api.url).items("owner/name", SINCE)


def test_bad_arguments() -> None:
    for token in ("", "two\nlines"):
        with pytest.raises(GitHubError, match="GITHUB_TOKEN"):
            Client(token)
    with pytest.raises(GitHubError, match="OWNER/NAME"):
        Client("secret").items("../etc", SINCE)


def test_an_unreachable_api(api: Api) -> None:
    api.server.server_close()
    with pytest.raises(GitHubError, match="cannot be reached"):
        Client("secret", api.url).items("owner/name", SINCE)


def test_a_fresh_window_stands_beside_the_stored_one(api: Api) -> None:
    pages(
        api,
        [
            entry(3, "2026-11-20T00:00:00Z", "2026-11-20T02:00:00Z", pull=True),
            entry(2, "2026-11-10T00:00:00Z", "2026-11-10T08:00:00Z"),
            entry(1, "2026-11-09T00:00:00Z"),
        ],
    )
    source = Source(LAB_DIRECTORY / "data" / "ros-middleware-evaluation-2020")
    section = repositories.section(source, Client("secret", api.url), NOW)
    fresh = next(table for table in section.tables if table.name == "repositories-fresh")
    assert fresh.rows[0] == ["Cyclone DDS", "pull requests", 1, 0, 0, 2.0, 2.0]
    assert fresh.rows[2] == ["Cyclone DDS", "issues alone", 2, 1, 0, 8.0, 8.0]
    assert [request[0].split("/")[3] for request in api.requests] == [
        "cyclonedds",
        "Fast-DDS",
        "rmw_cyclonedds",
        "rmw_fastrtps",
    ]
