"""Compares the nodes' records with the counters.

The identities are those of `crates/shm/src/counters.rs`: published = sent + dropped_newest + missed_*, and
sent = received + lost_in_crash + queued + dropped_oldest + dropped_away + undelivered + lost_with_producer,
where received excludes the samples that a killed process held. A process that is killed between an act and
its count leaves that act uncounted, so an identity may be off by at most one for each killed process.
"""

from collections import Counter
from typing import Any

from .plan import Node, Round
from .records import Received, Records, Sent
from .running import Running

MISSED = ["dropped_newest", "missed_held", "missed_memory", "missed_control"]
# Counted while there was no edge, so no receipt includes it.
AWAY = "missed_away"


def check_samples(plan: Round, records: Records) -> list[str]:
    """Invariants of samples under any kill: content, order, no duplicates."""
    problems = list(records.damaged)
    for node in plan.nodes:
        for name, source in node.edges.items():
            edge = f"{source['source']} -> {node.id}/{name}"
            problems += [
                f"{edge}: {problem}" for problem in check_order(plan, records, f"{node.id}/{name}", source)
            ]
    for topic in {source["source"] for node in plan.nodes for source in node.edges.values()}:
        problems += check_sequences(plan, records, topic)
    return problems


def check_order(plan: Round, records: Records, input: str, source: dict[str, Any]) -> list[str]:
    problems = []
    processes = records.received[input]
    producer, output = source["source"].split("/")
    sent = records.sent[source["source"]]
    has_history = bool(plan.node(producer).outputs[output])
    last: Received | None = None
    for incarnation in sorted(processes):
        if has_history:
            # A new process receives the history, which an earlier one had received too.
            last = None
        for sample in processes[incarnation]:
            if last is not None and (sample[0], sample[2]) <= (last[0], last[2]):
                problems.append(f"{sample} after {last} in incarnation {incarnation}")
            if last is not None and sample[0] == last[0] and sample[1] <= last[1]:
                problems.append(f"number {sample} after {last} in incarnation {incarnation}")
            if sample[1] not in sent[sample[0]].intended:
                problems.append(f"{sample} was never sent")
            last = sample
    return problems[:5]


def check_sequences(plan: Round, records: Records, topic: str) -> list[str]:
    """Consumers of one topic must agree on the sequence of each sample."""
    problems = []
    sequences: dict[tuple[int, int], int] = {}
    for node in plan.nodes:
        for name, source in node.edges.items():
            if source["source"] != topic:
                continue
            for process in records.received[f"{node.id}/{name}"].values():
                for incarnation, number, sequence in process:
                    known = sequences.setdefault((incarnation, number), sequence)
                    if known != sequence or sequence > number:
                        problems.append(f"{topic}: {number} has sequence {sequence}, and {known}")
    return problems[:5]


def check_counters(plan: Round, running: Running, records: Records) -> list[str]:
    """Invariants of the counters that `run` read at the end, where it could read them."""
    problems = []
    for node in plan.nodes:
        for name in node.edges:
            edge = running.edges.get(f"{node.id}/{name}")
            if edge and not edge.get("unreadable"):
                found = Account(plan, running, records, node, name, edge).problems()
                problems += [f"{edge['topic']} -> {edge['input']}: {problem}" for problem in found]
    for node in plan.nodes:
        # Python's `send` returns no receipt, and receipts in Rust also count edges of observers.
        for output in node.outputs if node.language == "rust" and not plan.is_watched else []:
            problems += check_reach(plan, running, records, node, output)
            problems += check_receipts(plan, running, records, node, output)
    return problems


def check_last_words(plan: Round, running: Running, records: Records) -> list[str]:
    """A producer with `on_failure` that fails sends its last word once: after all its samples, and before the
    samples of its next process.
    """
    problems = []
    for node in plan.nodes:
        for name, source in node.edges.items():
            producer, output = source["source"].split("/")
            promised = plan.node(producer).keys.get("on_failure", {}).get("output") == output
            failed = {end["incarnation"] for end in running.ends[producer] if end["failed"]}
            # A new process receives the history, which an earlier one had received too.
            has_history = bool(plan.node(producer).outputs[output])
            input = f"{node.id}/{name}"
            for incarnation in records.received[input].keys() | records.last_words[input].keys():
                words = records.last_words[input].get(incarnation, [])
                received = records.received[input].get(incarnation, [])
                found = last_words_of(
                    words,
                    received,
                    failed if promised else set(),
                    has_history,
                    # A restarted process inherits the queues of its failed predecessors.
                    inherits=incarnation > 0 and source["queue_policy"] == "block",
                    # `latest` skips some.
                    may_miss=name in node.orders.get("latest", []),
                )
                edge = f"{source['source']} -> {input} (incarnation {incarnation})"
                problems += [f"{edge}: {problem}" for problem in found]
    return problems[:5]


def last_words_of(
    words: list[tuple[int, int]],
    received: list[Received],
    failed: set[int],
    has_history: bool,
    *,
    inherits: bool = False,
    may_miss: bool = False,
) -> list[str]:
    """Returns the problems in the last values and samples that one process received from one producer."""
    problems = []
    spoken = [producer for producer, _ in words]
    for producer in set(spoken):
        if producer not in failed:
            problems.append(f"a last word of incarnation {producer}, which did not fail")
        if spoken.count(producer) > 1:
            problems.append(f"{spoken.count(producer)} last words of incarnation {producer}")
    for producer, before in words:
        after = [sample for sample in received[before:] if sample[0] <= producer]
        if after and not has_history:
            problems.append(f"{after[0]} behind the last word of incarnation {producer}")
        early = [sample for sample in received[:before] if sample[0] > producer]
        if early:
            problems.append(f"{early[0]} before the last word of incarnation {producer}")
    # The consumer ran when these producers ended, so it received their last words.
    begin = received[0][0] if received and not inherits else min(spoken, default=None)
    if received and begin is not None and not may_miss:
        for producer in range(begin, max(sample[0] for sample in received)):
            if producer in failed and producer not in spoken:
                problems.append(f"no last word of incarnation {producer}")
    return problems


def crashes(running: Running, node: str) -> int:
    return sum(1 for end in running.ends[node] if is_crash(end))


def is_crash(end: dict[str, Any]) -> bool:
    """A process that joined has no exit status: the keeper knows only whether it disconnected in order."""
    is_foreign = end["signal"] is None and end["code"] is None
    return end["signal"] is not None or (is_foreign and end.get("cause") != "left")


class Account:
    """The account of one edge."""

    def __init__(
        self,
        plan: Round,
        running: Running,
        records: Records,
        consumer: Node,
        name: str,
        edge: dict[str, Any],
    ) -> None:
        self.edge = edge
        self.source = consumer.inputs[name]
        self.is_polled = name in consumer.orders.get("latest", [])
        producer, output = self.source["source"].split("/")
        self.has_history = bool(plan.node(producer).outputs[output])
        self.is_block = self.source["queue_policy"] == "block"
        # Samples are not queued while no process has joined.
        self.is_dynamic = consumer.is_dynamic
        self.consumer_crashes = crashes(running, consumer.id)
        self.producer_crashes = crashes(running, producer)
        self.consumer_ends = running.ends[consumer.id]
        self.producer_ends = running.ends[producer]
        self.has_budget = "shared_memory" in plan.node(producer).keys
        self.received = records.received[f"{consumer.id}/{name}"]
        self.sent = records.sent[self.source["source"]]
        self.depth = edge["queue"]["depth"]
        self.max_held = edge["queue"]["max_held"]
        self.is_natural = plan.ending == "natural"

    def problems(self) -> list[str]:
        return [*self.check_causes(), *self.check_received(), *self.check_sent(), *self.check_losses()]

    def check_causes(self) -> list[str]:
        """Every cause with a count must have been possible."""
        policy = self.source["queue_policy"]
        impossible = {
            "dropped_oldest": policy not in ("drop_oldest", "latest"),
            "dropped_newest": policy != "drop_newest",
            "missed_memory": not self.has_budget,
            AWAY: self.is_block or self.is_dynamic or len(self.consumer_ends) < 2,
            "dropped_away": self.is_block or self.is_dynamic or len(self.consumer_ends) < 2,
            "lost_in_crash": self.consumer_crashes == 0,
            "lost_with_producer": len(self.consumer_ends) < 2,
        }
        found = [cause for cause, cannot in impossible.items() if cannot and self.edge[cause] > 0]
        if self.edge["lost_in_crash"] > self.consumer_crashes * self.max_held:
            found.append("lost_in_crash beyond max_held")
        if self.is_block and self.edge["missed_held"] + self.edge["missed_memory"] > 0:
            found.append("missed by block")
        return [f"{cause} cannot be: {self.edge}" for cause in found]

    def check_received(self) -> list[str]:
        counted = self.edge["received"] + self.edge["lost_in_crash"]
        written = sum(len(process) for process in self.received.values())
        # A killed process may have taken a sample without recording it; `latest` skips some.
        more = counted if self.is_polled else written + self.consumer_crashes
        if not written <= counted <= more:
            return [f"{counted} counted as received, {written} written down"]
        return []

    def check_sent(self) -> list[str]:
        """The identity of sent samples holds, up to the samples still queued and one per crash."""
        edge = self.edge
        sent = edge["sent"] - edge[AWAY] - sum(edge[cause] for cause in MISSED)
        queued = sent - edge["received"] - edge["lost_in_crash"] - edge["undelivered"]
        queued -= edge["dropped_oldest"] + edge["dropped_away"] + edge["lost_with_producer"]
        least = -self.producer_crashes
        # If the producer had gone before the consumer ended, samples in its ring are not counted.
        most = self.depth * len(self.producer_ends) + self.consumer_crashes
        if self.is_natural and self.consumer_crashes == 0 and len(self.consumer_ends) == 1:
            most = self.depth if self.is_dynamic else 0
        if not least <= queued <= most:
            return [f"{queued} are neither received nor counted, at least {least} and at most {most} may be"]
        if edge["sent"] != edge["received"] + edge["lost"] + edge["not_taken"]:
            return [f"sent is not received + lost + not taken: {edge}"]
        return []

    def check_losses(self) -> list[str]:
        """Every recorded sample of a producer is received, or counted by its cause."""
        if self.has_history:
            return []
        certain = sum(len(sent.receipts) + len(sent.without_memory) for sent in self.sent.values())
        uncertain = sum(sent.uncertain for sent in self.sent.values())
        published = self.edge["sent"]
        # Samples that a restarting consumer misses are counted.
        least = certain if not self.is_dynamic and not self.ended_early() else 0
        if not least - self.producer_crashes <= published <= certain + uncertain:
            return [f"{published} counted as published, {certain} written down (and {uncertain} uncertain)"]
        return []

    def ended_early(self) -> bool:
        """Whether the consumer ended for good while its producer may still have sent."""
        return not self.is_natural or self.consumer_ends[-1]["failed"]


def check_reach(plan: Round, running: Running, records: Records, node: Node, output: str) -> list[str]:
    """No sample omits an edge to a lasting consumer.

    A `block` edge waits for a restarting consumer, and a consumer without a restart was connected
    throughout. So each receipt counts at least these edges, until the order to stop.
    """
    topic = f"{node.id}/{output}"
    lasting = 0
    for consumer in (consumer for consumer in plan.nodes if not consumer.is_dynamic):
        for source in consumer.edges.values():
            ends = running.ends[consumer.id]
            is_lasting = (source["queue_policy"] == "block" or len(ends) == 1) and not ends[-1]["failed"]
            lasting += source["source"] == topic and is_lasting
    problems = []
    passed_by: str | None = None
    for incarnation, sent in sorted(records.sent[topic].items()):
        for number, receipt in sent.receipts.items():
            queued, missed = receipt or (0, 0)
            if queued + missed < lasting:
                passed_by = (
                    passed_by or f"{number} of incarnation {incarnation} ({queued} queued, {missed} missed)"
                )
            elif passed_by:
                problems.append(f"{topic}: {passed_by} passed by some of {lasting} edges, later ones did not")
                passed_by = None
    return problems[:5]


def check_receipts(plan: Round, running: Running, records: Records, node: Node, output: str) -> list[str]:
    """The receipts of a producer agree with the counters of its edges."""
    topic = f"{node.id}/{output}"
    edges = [edge for edge in running.edges.values() if edge["topic"] == topic]
    if node.outputs[output] or not edges or any(edge.get("unreadable") for edge in edges):
        return []
    sums: Counter[str] = Counter()
    for sent in records.sent[topic].values():
        sums.update(tally(sent, len(edges)))
    counted_missed = sum(edge[cause] for edge in edges for cause in MISSED)
    counted_queued = sum(edge["sent"] - edge[AWAY] for edge in edges) - counted_missed
    problems = []
    if not sums["queued"] - crashes(running, node.id) * len(edges) <= counted_queued <= sums["most queued"]:
        problems.append(f"{topic}: receipts say {dict(sums)}, the edges {counted_queued} queued")
    if not sums["missed"] - crashes(running, node.id) * len(edges) <= counted_missed <= sums["most missed"]:
        problems.append(f"{topic}: receipts say {dict(sums)}, the edges {counted_missed} missed")
    return problems


def tally(sent: Sent, edges: int) -> dict[str, int]:
    receipts = [receipt for receipt in sent.receipts.values() if receipt]
    queued = sum(queued for queued, _ in receipts)
    missed = sum(missed for _, missed in receipts)
    return {
        "queued": queued,
        "missed": missed,
        "most queued": queued + sent.uncertain * edges,
        "most missed": missed + (sent.uncertain + len(sent.without_memory)) * edges,
    }
