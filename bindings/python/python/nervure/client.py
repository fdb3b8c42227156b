"""A client of the API of ``nervure serve``.

>>> from nervure.client import Client
>>> client = Client()
>>> [row["dataflow"] for row in client.dataflows()["dataflows"]]
['drive']

Each method returns the JSON that the command of the same name writes with ``--json``.
"""

import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from nervure.errors import NervureError

__all__ = ["ApiError", "Client", "Stream"]

Json = dict[str, Any]


class ApiError(NervureError):
    """The server has refused a request, or could not carry it out.

    Attributes:
        status: The HTTP status, such as 404 for a dataflow that does not run.
        hint: The likely fix, if one is known.
    """

    def __init__(self, status: int, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")
        self.status = status
        self.hint = hint


class Client:
    """Asks a server.

    Args:
        url: Where the server listens.
        token: The token of the server. Default: that in the state folder of this user
            (``NERVURE_STATE``, or ``~/.local/state/nervure``), or in that of the domain in
            ``NERVURE_DOMAIN``.
        certificate: The certificate of the server, or of the authority that has signed it, as a PEM
            file. Default: the authorities of this system.
        timeout: How long to wait for each answer, in seconds.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:7710",
        *,
        token: str | None = None,
        certificate: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token if token is not None else _token_of_user()
        self._timeout = timeout
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if certificate is not None:
            context = ssl.create_default_context(cafile=os.fspath(certificate))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def dataflows(self) -> Json:
        """The running dataflows, as ``nervure list``."""
        return self._ask("GET", "dataflows")

    def status(self, dataflow: str) -> Json:
        """The state of a dataflow, as ``nervure status``."""
        return self._ask("GET", "dataflows", dataflow)

    def load(self, dataflow: str, *, interval_millis: int = 500) -> Json:
        """The load of nodes and the traffic on edges over an interval, as ``nervure top``."""
        return self._ask("GET", "dataflows", dataflow, "load", query={"interval_millis": interval_millis})

    def topics(self, dataflow: str) -> Json:
        """The topics of a dataflow, as ``nervure topic list``."""
        return self._ask("GET", "dataflows", dataflow, "topics")

    def topic_infos(self, dataflow: str, *topics: str) -> Json:
        """Topics with their edges, as ``nervure topic info``; all without ``topics``."""
        return self._ask("GET", "dataflows", dataflow, "topics", "info", query=_of(topics))

    def holders(self, dataflow: str, *topics: str) -> Json:
        """The consumers of topics with the samples that they hold, as ``nervure holders``."""
        return self._ask("GET", "dataflows", dataflow, "holders", query=_of(topics))

    def explain(self, dataflow: str, *topics: str) -> Json:
        """Where and why samples were lost, as ``nervure explain``."""
        return self._ask("GET", "dataflows", dataflow, "explain", query=_of(topics))

    def lint(self, dataflow: str, *, interval_millis: int = 3000) -> Json:
        """Better settings for a dataflow that is measured over an interval, as ``nervure lint``."""
        return self._ask("GET", "dataflows", dataflow, "lint", query={"interval_millis": interval_millis})

    def params(self, dataflow: str) -> Json:
        """The parameters of the nodes of a dataflow, as ``nervure param list``."""
        return self._ask("GET", "dataflows", dataflow, "params")

    def logs(
        self,
        dataflow: str,
        *,
        node: str | None = None,
        level: str | None = None,
        pattern: str | None = None,
        since_seconds: float | None = None,
        most: int | None = None,
    ) -> Json:
        """The newest log records of a dataflow, as ``nervure logs``."""
        query = {
            "node": node,
            "level": level,
            "pattern": pattern,
            "since_seconds": since_seconds,
            "most": most,
        }
        return self._ask("GET", "dataflows", dataflow, "logs", query=query)

    def follow_logs(
        self,
        dataflow: str,
        *,
        node: str | None = None,
        level: str | None = None,
        pattern: str | None = None,
        since_seconds: float | None = None,
    ) -> "Stream":
        """The log records of a dataflow as they are written, as ``nervure logs --follow``."""
        query = {"node": node, "level": level, "pattern": pattern, "since_seconds": since_seconds}
        return Stream(self._open("GET", "dataflows", dataflow, "logs", "follow", query=query))

    def samples(self, dataflow: str, *topics: str, full: bool = False) -> "Stream":
        """The samples of topics as they arrive, as ``nervure topic echo``; of all without ``topics``.

        Args:
            topics: Topics, ``node/output``; ``*`` matches anything.
            full: Whether long arrays and texts are written in full.
        """
        query = _of(topics) | {"full": "true" if full else None}
        return Stream(self._open("GET", "dataflows", dataflow, "samples", query=query))

    def machines(self) -> Json:
        """The machines of the fleet, as ``nervure machine list``."""
        return self._ask("GET", "machines")

    def invite(
        self, *, role: str = "robot", with_approval: bool = False, valid_seconds: float = 3600.0
    ) -> Json:
        """Makes an invitation for another machine, as ``nervure machine invite``."""
        body = {"role": role, "with_approval": with_approval, "valid_seconds": valid_seconds}
        return self._ask("POST", "invitations", body=body)

    def approve(self, machine: str) -> Json:
        """Admits a machine that waits for approval."""
        return self._ask("POST", "machines", machine, "approve")

    def revoke(self, machine: str) -> Json:
        """Excludes a machine from the fleet."""
        return self._ask("POST", "machines", machine, "revoke")

    def record(
        self,
        dataflow: str,
        file: str | os.PathLike[str],
        *topics: str,
        split: str | None = None,
        max_disk: str | None = None,
        compress: bool = False,
    ) -> Json:
        """Begins a recording, as ``nervure record``; of all topics without ``topics``.

        Args:
            file: The absolute path of its file on the machine of the server.
            split: Begin a new file before one exceeds this size or age, such as ``1GB`` or ``10min``.
            max_disk: Delete the oldest files above this size of all of them.
        """
        body: Json = {"file": os.fspath(file), "topics": list(topics), "compress": compress}
        body |= {"split": split, "max_disk": max_disk}
        return self._ask("POST", "dataflows", dataflow, "recordings", body=body)

    def recordings(self) -> Json:
        """The recordings that the server has started."""
        return self._ask("GET", "recordings")

    def stop_recording(self, recording: int) -> Json:
        """Ends a recording, and waits until its file is complete."""
        return self._ask("POST", "recordings", str(recording), "stop")

    def start(
        self,
        file: str | os.PathLike[str],
        *,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        on_fleet: bool = False,
        bind: Mapping[str, str] | None = None,
    ) -> Json:
        """Starts a dataflow that runs in the background, as ``nervure run --detach``, or with ``on_fleet``
        as ``nervure start``.

        Args:
            file: The absolute path of its file on the machine of the server.
            params: Parameters of nodes, as ``node.name``.
            bind: The machine of each role, with ``on_fleet``.
        """
        body: Json = {"file": os.fspath(file), "on_fleet": on_fleet}
        body |= {"name": name, "params": dict(params or {}), "bind": dict(bind or {})}
        return self._ask("POST", "dataflows", body=body)

    def stop(self, dataflow: str, *, kill: bool = False) -> Json:
        """Stops a dataflow, and waits until it has ended."""
        query = {"kill": "true" if kill else None}
        return self._ask("POST", "dataflows", dataflow, "stop", query=query)

    def pause(self, dataflow: str) -> Json:
        """Pauses a dataflow."""
        return self._ask("POST", "dataflows", dataflow, "pause")

    def resume(self, dataflow: str) -> Json:
        """Resumes a paused dataflow."""
        return self._ask("POST", "dataflows", dataflow, "resume")

    def stop_node(self, dataflow: str, node: str) -> Json:
        """Stops a node, and waits until it has ended."""
        return self._ask("POST", "dataflows", dataflow, "nodes", node, "stop")

    def start_node(self, dataflow: str, node: str) -> Json:
        """Starts a node that was stopped, or has ended."""
        return self._ask("POST", "dataflows", dataflow, "nodes", node, "start")

    def restart_node(self, dataflow: str, node: str) -> Json:
        """Restarts a node, and waits until it runs again."""
        return self._ask("POST", "dataflows", dataflow, "nodes", node, "restart")

    def set_param(self, dataflow: str, node: str, name: str, value: Any) -> Json:
        """Changes a parameter of a node, and returns it."""
        return self._ask("PUT", "dataflows", dataflow, "params", node, name, body={"value": value})

    def _ask(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: Json | None = None,
    ) -> Json:
        with self._open(method, *path, query=query, body=body) as response:
            answer: Json = json.load(response)
            return answer

    def _open(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: Json | None = None,
    ) -> HTTPResponse:
        url = "/".join([self._url, "v1", *(urllib.parse.quote(part, safe="") for part in path)])
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            url += "?" + urllib.parse.urlencode(given)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            response: HTTPResponse = self._opener.open(request, timeout=self._timeout)
            return response
        except urllib.error.HTTPError as error:
            raise _error(error) from None


class Stream:
    """Samples or log records as they come: an iterator of their JSON.

    It ends when the dataflow does, or when nothing was taken from it for 30 s; ``reason`` has the cause. On
    a failure it raises :class:`ApiError`. Close it, or use it in ``with``, to end it earlier.

    Attributes:
        missed: The number of samples or records that were left out so far, because they were not taken
            in time.
        reason: Why it has ended.
    """

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self._events = _events(response)
        self.missed = 0
        self.reason: str | None = None

    def __iter__(self) -> Iterator[Json]:
        return self

    def __next__(self) -> Json:
        for kind, data in self._events:
            if kind == "missed":
                self.missed += data["missed"]
            elif kind == "end":
                self._end(data)
                break
            else:
                return data
        else:
            if self.reason is None:
                raise ApiError(self._response.status, "the server has ended the stream without a reason")
        raise StopIteration

    def _end(self, data: Json) -> None:
        self.reason = data["reason"]
        self.close()
        error = data.get("error")
        if error is not None:
            message = ": ".join([error["message"], *error["caused_by"]])
            raise ApiError(self._response.status, message, error["hint"])

    def close(self) -> None:
        """Ends the stream."""
        self.reason = self.reason or "closed"
        self._response.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _events(lines: Iterable[bytes]) -> Iterator[tuple[str, Json]]:
    """Server-sent events with their data as JSON; comments are left out."""
    kind, data = "", ""
    for line in lines:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            data = value
        elif not name and data:
            yield kind, json.loads(data)
            kind, data = "", ""


def _of(topics: tuple[str, ...]) -> Json:
    return {"topics": ",".join(topics) or None}


def _error(response: urllib.error.HTTPError) -> ApiError:
    text = response.read()
    try:
        details = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return ApiError(response.code, f"{response.code} {response.reason}")
    message = ": ".join([details["message"], *details["caused_by"]])
    return ApiError(response.code, message, details["hint"])


def _token_of_user() -> str:
    """The token in the folder where ``nervure serve`` of this user and domain has put it."""
    state = os.environ.get("NERVURE_STATE")
    if state:
        folder = Path(state)
    else:
        folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "nervure"
    domain = os.environ.get("NERVURE_DOMAIN")
    file = (folder / f"@{domain}" if domain else folder) / "api-token"
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        message = f"there is no {file}: has `nervure serve` run as this user? Or give `token`"
        raise FileNotFoundError(message) from None
