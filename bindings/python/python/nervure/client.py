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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nervure.errors import NervureError

__all__ = ["ApiError", "Client"]

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
            (``NERVURE_STATE``, or ``~/.local/state/nervure``).
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

    def machines(self) -> Json:
        """The machines of the fleet, as ``nervure machine list``."""
        return self._ask("GET", "machines")

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
        """Lets a paused dataflow go on."""
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
        url = "/".join([self._url, "v1", *(urllib.parse.quote(part, safe="") for part in path)])
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            url += "?" + urllib.parse.urlencode(given)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                answer: Json = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            raise _error(error) from None


def _error(response: urllib.error.HTTPError) -> ApiError:
    text = response.read()
    try:
        details = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return ApiError(response.code, f"{response.code} {response.reason}")
    message = ": ".join([details["message"], *details["caused_by"]])
    return ApiError(response.code, message, details["hint"])


def _token_of_user() -> str:
    """The token in the folder where ``nervure serve`` of this user has put it."""
    state = os.environ.get("NERVURE_STATE")
    if state:
        folder = Path(state)
    else:
        folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "nervure"
    file = folder / "api-token"
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        message = f"there is no {file}: has `nervure serve` run as this user? Or give `token`"
        raise FileNotFoundError(message) from None
