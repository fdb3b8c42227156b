"""`nervure serve` beside parsers of others: its metrics and its OpenAPI document keep their formats."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nervure.client import ApiError, Client
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families

BIN = Path(sys.prefix) / "bin"


class Server:
    """A server, and a dataflow with a name of its own."""

    def __init__(self, folder: Path) -> None:
        self.dataflow = f"api-{os.getpid()}"
        self.file = folder / "water.yml"
        (folder / "pump.py").write_text(
            "from nervure import Node\n"
            "node = Node()\n"
            "for event in node:\n"
            "    if event.id == 'tick':\n"
            "        node.send('level', 1)\n"
        )
        (folder / "gauge.py").write_text(
            "from nervure import Node\nfor event in Node():\n    print(event.type, flush=True)\n"
        )
        self.file.write_text(
            "nodes:\n"
            "  - {id: pump, path: pump.py, inputs: {tick: nervure/timer/hz/50}, outputs: [level],\n"
            "     params: {flow: 1}}\n"
            "  - {id: gauge, path: gauge.py, inputs: {level: pump/level}}\n"
        )
        environment = os.environ | {"NERVURE_STATE": str(folder), "NERVURE_LOG_DIR": str(folder / "logs")}
        self.process = subprocess.Popen(
            [BIN / "nervure", "serve", "--listen", "127.0.0.1:0"],
            env=environment | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        token_file = self._after("the token of requests is in ").strip()
        self.url = self._after("serving ").split("/v1")[0]
        self.client = Client(self.url, token=Path(token_file).read_text().strip())

    def _after(self, begin: str) -> str:
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line.startswith(begin), line + self.process.stderr.read()
        return line.removeprefix(begin)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("api"))
    try:
        started = server.client.start(server.file, name=server.dataflow, params={"pump.flow": 2})
        assert started["dataflow"] == server.dataflow
        try:
            yield server
        finally:
            assert server.client.stop(server.dataflow)["stopped"]
    finally:
        server.process.terminate()
        server.process.wait()


def test_the_document_is_valid_openapi(server: Server) -> None:
    validate(server.client._ask("GET", "openapi.json"))


def test_metrics_are_parsed_by_the_parser_of_prometheus(server: Server) -> None:
    with server.client._opener.open(f"{server.url}/metrics") as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    states = {
        (sample.labels["node"], sample.labels["state"])
        for family in families
        if family.name == "nervure_node_state"
        for sample in family.samples
        if sample.labels["dataflow"] == server.dataflow
    }
    assert states == {("pump", "runs"), ("gauge", "runs")}
    for family in families:
        assert family.documentation
        assert family.type in {"counter", "gauge", "histogram"}


def test_the_client_reads_and_changes(server: Server) -> None:
    client, dataflow = server.client, server.dataflow
    assert dataflow in {row["dataflow"] for row in client.dataflows()["dataflows"]}
    status = client.status(dataflow)
    assert [node["id"] for node in status["nodes"]] == ["pump", "gauge"]
    assert [topic["topic"] for topic in client.topics(dataflow)["topics"]] == ["pump/level"]
    assert [edge["input"] for edge in client.load(dataflow, interval_millis=100)["edges"]] == ["gauge/level"]
    assert [param["value"] for param in client.params(dataflow)["params"]] == [2]
    assert client.set_param(dataflow, "pump", "flow", 3)["value"] == 3
    pid = status["nodes"][1]["pid"]
    assert client.restart_node(dataflow, "gauge")["pid"] != pid
    client.stop_node(dataflow, "gauge")
    assert client.status(dataflow)["nodes"][1]["state"] == "stopped"
    client.start_node(dataflow, "gauge")
    assert client.pause(dataflow)["paused"]
    assert not client.resume(dataflow)["paused"]
    records = client.logs(dataflow, node="gauge", pattern="^INPUT$", most=1)["records"]
    assert len(records) <= 1


def test_errors_have_status_and_hint(server: Server) -> None:
    with pytest.raises(ApiError, match="no dataflow `nope` runs") as caught:
        server.client.status("nope")
    assert caught.value.status == 404
    with pytest.raises(ApiError, match="no fleet") as caught:
        server.client.machines()
    assert caught.value.status == 400
    assert caught.value.hint is not None
    with pytest.raises(ApiError) as caught:
        Client(server.url, token="0" * 64).dataflows()
    assert caught.value.status == 401
