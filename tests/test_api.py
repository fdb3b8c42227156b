"""Third-party parsers read the metrics and the OpenAPI document of `nervure serve`."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

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


def test_the_client_examines_and_follows(server: Server, tmp_path: Path) -> None:
    client, dataflow = server.client, server.dataflow
    assert client.topic_infos(dataflow, "pump/level")["topics"][0]["producer"]["id"] == "pump"
    assert client.holders(dataflow, "pump/*")["holders"][0]["consumer"] == "gauge/level"
    assert [edge["topic"] for edge in client.explain(dataflow)["edges"]] == ["pump/level"]
    assert client.lint(dataflow, interval_millis=100)["dataflow"] == dataflow
    with client.samples(dataflow, "pump/level") as samples:
        assert {next(samples)["topic"] for _ in range(3)} == {"pump/level"}
        assert (samples.missed, samples.reason) == (0, None)
    assert list(samples) == []
    assert samples.reason == "closed"
    with client.follow_logs(dataflow, node="gauge", since_seconds=3600) as records:
        assert next(records)["node"] == "gauge"
    with pytest.raises(ApiError, match="no topic `pump/levle`") as caught:
        client.samples(dataflow, "pump/levle")
    assert caught.value.hint == "did you mean `pump/level`?"
    recording = client.record(dataflow, tmp_path / "run.mcap", "pump/level")["recording"]
    assert client.recordings()["recordings"][0]["is_running"]
    assert client.stop_recording(recording)["summary"]["reason"] == "a signal"
    assert (tmp_path / "run.mcap").exists()


def test_a_stream_ends_with_its_dataflow(server: Server) -> None:
    client = server.client
    name = f"{server.dataflow}-short"
    client.start(server.file, name=name)
    samples = client.samples(name)
    next(samples)
    client.stop(name)
    assert all(sample["topic"] == "pump/level" for sample in samples)
    assert samples.reason == "the dataflow has ended"


class Fleet:
    """A fleet of one machine, with a server."""

    def __init__(self, folder: Path) -> None:
        self.name = f"fleet-{os.getpid()}"
        (folder / "beat.py").write_text("from nervure import Node\nfor event in Node():\n    pass\n")
        self.file = folder / "beat.yml"
        self.file.write_text(
            "machines: {robot: {}}\n"
            "nodes:\n"
            "  - {id: beat, path: beat.py, inputs: {tick: nervure/timer/hz/50}, params: {rate: 1}}\n"
        )
        environment = os.environ | {
            "NERVURE_STATE": str(folder / "state"),
            "NERVURE_LOG_DIR": str(folder / "logs"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        up = [BIN / "nervure", "up", "--name", "laptop", "--address", "127.0.0.1:0"]
        self.processes = [self._start(up, environment, subprocess.PIPE, None)]
        self._line(self.processes[0].stdout, "nervure join")
        serve = [BIN / "nervure", "serve", "--listen", "127.0.0.1:0"]
        self.processes.append(self._start(serve, environment, None, subprocess.PIPE))
        token = self._line(self.processes[1].stderr, "the token of requests is in ").strip()
        url = self._line(self.processes[1].stderr, "serving ").split("/v1")[0].removeprefix("serving ")
        self.client = Client(url, token=Path(token.split(" is in ")[1]).read_text().strip())

    @staticmethod
    def _start(
        command: list[str | Path], environment: dict[str, str], stdout: int | None, stderr: int | None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr, text=True)

    @staticmethod
    def _line(lines: IO[str] | None, begin: str) -> str:
        assert lines is not None
        line = lines.readline()
        assert line.startswith(begin), line
        return line

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
            process.wait()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    try:
        yield fleet
    finally:
        fleet.end()


def test_the_client_starts_on_a_fleet_and_manages_it(fleet: Fleet) -> None:
    client = fleet.client
    with pytest.raises(ApiError, match="cannot be placed") as caught:
        client.start(fleet.file, name=fleet.name, on_fleet=True)
    assert caught.value.status == 400
    started = client.start(
        fleet.file, name=fleet.name, params={"beat.rate": 2}, on_fleet=True, bind={"robot": "laptop"}
    )
    assert (started["dataflow"], started["machines"]) == (fleet.name, {"robot": "laptop"})
    try:
        status = client.status(fleet.name)
        assert [(node["id"], node["machine"]) for node in status["nodes"]] == [("beat", "laptop")]
        assert [param["value"] for param in client.params(fleet.name)["params"]] == [2]
    finally:
        assert client.stop(fleet.name)["stopped"]
    invited = client.invite(role="observer", valid_seconds=60)
    assert (invited["role"], invited["with_approval"]) == ("observer", False)
    assert "#" in invited["invitation"]
    with pytest.raises(ApiError, match="no machine `r07`"):
        client.approve("r07")
    with pytest.raises(ApiError, match="cannot be revoked"):
        client.revoke("laptop")
    assert [machine["standing"] for machine in client.machines()["machines"]] == ["paired"]


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
