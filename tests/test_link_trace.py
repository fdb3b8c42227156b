"""scripts/plot_link_trace.py reads and draws the trace of a link."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "plot_link_trace.py"


@pytest.fixture
def plot(monkeypatch):
    specification = importlib.util.spec_from_file_location("plot_link_trace", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    # `dataclass` looks the module up by name.
    monkeypatch.setitem(sys.modules, specification.name, module)
    specification.loader.exec_module(module)
    return module


def lines():
    """A second of feedback from two peers; the second one is silent for a while, twice."""
    for time in range(0, 1000, 10):
        for peer in ("ed25519:aa", "ed25519:bb"):
            data = {
                "bytes_per_second": 1e6 + time,
                "bottleneck_bytes_per_second": 2e6,
                "rtt_ms": 5.0,
                "base_rtt_ms": 4.0,
                "queue_ms": 1.0,
                "loss": 0.2,
                "in_flight_bytes": 1000,
            }
            yield {"time": time, "peer": peer, "name": "feedback", "data": data}
        for at, change in {300: "silent", 450: "steady", 900: "silent"}.items():
            if at == time:
                data = {"from": "", "to": change, "silence_ms": 50, "in_flight_bytes": 0}
                yield {"time": time, "peer": "ed25519:bb", "name": "phase", "data": data}


def test_records_are_sorted_by_peer(plot, capsys):
    missing = json.dumps({"name": "missing", "data": {"records": 7}})
    peers = plot.read([*map(json.dumps, lines()), missing], "trace")
    assert list(peers) == ["ed25519:aa", "ed25519:bb"]
    assert [len(peer.feedback) for peer in peers.values()] == [100, 100]
    assert peers["ed25519:aa"].silences == []
    assert peers["ed25519:bb"].silences == [(0.3, 0.45), (0.9, 0.99)]
    assert "7 records are missing" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"peer": "a"}', '{"name": "feedback"', '{"data": {}}'])
def test_a_wrong_line_is_named(plot, line):
    with pytest.raises(SystemExit, match="trace:2: expected a record"):
        plot.read([json.dumps(next(lines())), line], "trace")


def test_it_draws(plot, tmp_path):
    pytest.importorskip("matplotlib")
    peers = plot.read(map(json.dumps, lines()), "trace")
    plot.draw(peers, tmp_path / "trace.png")
    assert (tmp_path / "trace.png").read_bytes().startswith(b"\x89PNG")
