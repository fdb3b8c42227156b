"""The part of the GitHub REST API that the statistics of repositories need.

`GET /repos/OWNER/NAME/issues` lists issues and pull requests, newest first, a hundred a page; the header
`Link` names the next page (https://docs.github.com/en/rest/issues/issues).
"""

from __future__ import annotations

import datetime
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

API = "https://api.github.com"
MAX_PAGES = 100
MAX_PAGE_BYTES = 16 << 20
TIMEOUT_SECONDS = 30.0
_REPOSITORY = re.compile(r"[A-Za-z0-9-]+/(?!\.{1,2}$)[A-Za-z0-9._-]+")
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="next"')


class GitHubError(ValueError):
    """The API did not give the answer; the message has the remedy."""


@dataclass(frozen=True)
class Item:
    number: int
    is_pull: bool
    opened: datetime.datetime
    closed: datetime.datetime | None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another host."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


class Client:
    def __init__(self, token: str, api: str = API) -> None:
        if not token or not token.isprintable() or not token.isascii():
            raise GitHubError("expected a token of GitHub in the environment variable GITHUB_TOKEN")
        self._token = token
        self._api = api
        self._opener = urllib.request.build_opener(_NoRedirect)

    def items(self, repository: str, since: datetime.datetime) -> list[Item]:
        """Returns the issues and pull requests that were opened since a time, newest first."""
        if not _REPOSITORY.fullmatch(repository):
            raise GitHubError(f"expected a repository OWNER/NAME, got {repository!r}")
        parameters = {"state": "all", "sort": "created", "direction": "desc", "per_page": "100"}
        url = f"{self._api}/repos/{repository}/issues?{urllib.parse.urlencode(parameters)}"
        found: dict[int, Item] = {}
        for _ in range(MAX_PAGES):
            page, following = self._page(url, repository)
            items = [_item(entry, repository) for entry in page]
            # An entry moves to the next page when another one is opened between two requests.
            found |= {item.number: item for item in items if item.opened >= since}
            if following is None or any(item.opened < since for item in items):
                return list(found.values())
            if not following.startswith(f"{self._api}/"):
                raise GitHubError(f"{repository}: the API names a next page on another host: {following!r}")
            url = following
        raise GitHubError(f"{repository}: more than {MAX_PAGES} pages of issues; choose a shorter time")

    def _page(self, url: str, repository: str) -> tuple[list[Any], str | None]:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._token}",
            "User-Agent": "nervure-lab",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        request = urllib.request.Request(url, headers=headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                content = answer.read(MAX_PAGE_BYTES + 1)
                link = answer.headers.get("Link", "")
        except urllib.error.HTTPError as error:
            raise GitHubError(f"{repository}: {_reason(error)}") from error
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", error)
            raise GitHubError(f"{repository}: {self._api} cannot be reached, {reason}") from error
        if len(content) > MAX_PAGE_BYTES:
            raise GitHubError(f"{repository}: a page has more than {MAX_PAGE_BYTES} bytes")
        try:
            page = json.loads(content)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise GitHubError(f"{repository}: expected JSON from the API, {error}") from error
        if not isinstance(page, list):
            raise GitHubError(f"{repository}: expected a list of issues from the API, got {str(page)[:80]}")
        following = _NEXT.search(link)
        return page, following.group(1) if following else None


def _reason(error: urllib.error.HTTPError) -> str:
    if error.code in (403, 429) and error.headers.get("X-RateLimit-Remaining") == "0":
        reset = error.headers.get("X-RateLimit-Reset", "")
        when = ""
        if reset.isdecimal() and len(reset) < 12:
            at = datetime.datetime.fromtimestamp(int(reset), datetime.timezone.utc)
            when = f"; it allows more from {at:%H:%M:%S} UTC on"
        return f"the API's rate limit is used up{when}"
    known = {
        401: "the API refuses the token in GITHUB_TOKEN (401)",
        403: "the token may not read this repository (403)",
        404: "there is no such repository, or the token may not see it (404)",
    }
    return known.get(error.code, f"the API answers {error.code} {error.reason}")


def _item(entry: Any, repository: str) -> Item:
    try:
        closed = entry["closed_at"]
        return Item(
            int(entry["number"]),
            "pull_request" in entry,
            _time(entry["created_at"]),
            None if closed is None else _time(closed),
        )
    except (KeyError, TypeError, ValueError) as error:
        message = f"{repository}: expected an issue with number, created_at and closed_at from the API, got"
        raise GitHubError(f"{message} {str(entry)[:80]}") from error


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
