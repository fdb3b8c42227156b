//! Reads the inputs and outputs of a node.

use std::collections::{BTreeMap, HashMap};

use nervure_protocol::{nearest, wiring::MAX_NODE_INPUTS};

use crate::diagnostic::{Code, Finding};
use crate::graph::{Queue, QueuePolicy};
use crate::keys::{
    HISTORY, INPUT, MAX_HELD, OTHER_KINDS_OF_NODES, OUTPUT, QUEUE_POLICIES, QUEUE_SIZE, Shape,
};
use crate::name::TypeName;
use crate::parsed::{ParsedInput, ParsedOutput, ParsedSource, Spanned};
use crate::quote::{quoted, shown};
use crate::reader::{Keys, Reader};
use crate::source::Span;
use crate::timer::parse_timer;
use crate::tree::{Entry, Kind, Text, Value};

impl Reader<'_> {
    /// The inputs, and whether they are all that the file wants to have.
    pub fn inputs(&mut self, node: &Keys<'_>) -> (Vec<ParsedInput>, bool) {
        let errors_before = self.findings.errors();
        let mut inputs = node
            .get_some("inputs")
            .map(|entry| self.input_map(&entry.value))
            .unwrap_or_default();
        let types = node
            .get_some("input_types")
            .map(|entry| self.types(&entry.value))
            .unwrap_or_default();
        let ports = inputs
            .iter_mut()
            .map(|input| (&input.name, &mut input.type_name))
            .collect();
        self.assign_types(ports, types, "input");
        (
            inputs,
            self.findings.errors() == errors_before && !has_ports_elsewhere(node, "inputs"),
        )
    }

    /// The outputs, and whether they are all that the file wants to have.
    pub fn outputs(&mut self, node: &Keys<'_>) -> (Vec<ParsedOutput>, bool) {
        let errors_before = self.findings.errors();
        let outputs = node
            .get_some("outputs")
            .map(|entry| match &entry.value.kind {
                Kind::List(items) => self.output_list(items),
                _ => self.output_map(&entry.value),
            });
        let mut outputs = outputs.unwrap_or_default();
        let types = node
            .get_some("output_types")
            .map(|entry| self.types(&entry.value))
            .unwrap_or_default();
        let ports = outputs
            .iter_mut()
            .map(|output| (&output.name, &mut output.type_name))
            .collect();
        self.assign_types(ports, types, "output");
        (
            outputs,
            self.findings.errors() == errors_before && !has_ports_elsewhere(node, "outputs"),
        )
    }

    fn input_map(&mut self, value: &Value) -> Vec<ParsedInput> {
        if let Kind::List(_) = value.kind {
            let finding = self.wrong_type(value, &Shape::Inputs.describe());
            self.findings.push(finding.hint(
                "inputs have names: write `image: camera/image` instead of `- camera/image`",
            ));
            return Vec::new();
        }
        let entries = self
            .entries(value, Shape::Inputs, Code::DuplicateInput, "input")
            .unwrap_or_default();
        if let Some(first_beyond) = entries.get(MAX_NODE_INPUTS as usize) {
            let message = format!("the node has {} inputs", entries.len());
            let finding = Finding::error(Code::OutOfRange, first_beyond.key.span, message)
                .expected(format!("at most {MAX_NODE_INPUTS} inputs"))
                .hint("divide the node, or let another node combine some of them");
            self.findings.push(finding);
        }
        entries
            .iter()
            .filter_map(|entry| self.input(entry))
            .collect()
    }

    fn output_list(&mut self, items: &[Value]) -> Vec<ParsedOutput> {
        let mut outputs = Vec::new();
        let mut first: HashMap<String, Span> = HashMap::new();
        for item in items {
            if let Kind::Map(_) = item.kind {
                let finding = self.wrong_type(item, "the name of an output");
                self.findings.push(finding.hint(
                    "for outputs with properties write a map, without `-`: `image: {type: std/Image@1}`",
                ));
                continue;
            }
            let Some(name) = self.name(item, "output") else {
                continue;
            };
            if let Some(first) = first.get(&name.text) {
                let message = format!("the output {} is there twice", quoted(&name.text));
                let finding = Finding::error(Code::DuplicateOutput, name.span, message)
                    .hint("remove or rename one of them")
                    .related(*first, "first here");
                self.findings.push(finding);
                continue;
            }
            first.insert(name.text.clone(), name.span);
            outputs.push(ParsedOutput {
                name,
                history: 0,
                type_name: None,
            });
        }
        outputs
    }

    fn output_map(&mut self, value: &Value) -> Vec<ParsedOutput> {
        if let Kind::Text(name) = &value.kind {
            let finding = self.wrong_type(value, &Shape::Outputs.describe());
            self.findings
                .push(finding.hint(format!("write `[{}]`", shown(name))));
            return Vec::new();
        }
        let entries = self
            .entries(value, Shape::Outputs, Code::DuplicateOutput, "output")
            .unwrap_or_default();
        let mut outputs = Vec::new();
        for Entry { key: name, value } in entries {
            let is_named = self.check_name(name, "output");
            let mut output = ParsedOutput {
                name: name.clone(),
                history: 0,
                type_name: None,
            };
            if !matches!(value.kind, Kind::Null) {
                let hint = match &value.kind {
                    Kind::Text(text) if text.contains('/') => {
                        format!("write `{{type: {}}}`", shown(text))
                    }
                    _ => "write `{type: std/Image@1, history: 1}`, or `{}` for neither".to_owned(),
                };
                let Some(keys) = self.keys(value, &OUTPUT, Some(&hint)) else {
                    continue;
                };
                output.type_name = keys
                    .get("type")
                    .and_then(|entry| self.type_name(&entry.value));
                let history = keys
                    .get("history")
                    .and_then(|entry| self.unsigned(&entry.value, &HISTORY));
                output.history = history.unwrap_or(0);
            }
            if is_named {
                outputs.push(output);
            }
        }
        outputs
    }

    fn input(&mut self, entry: &Entry) -> Option<ParsedInput> {
        let Entry { key: name, value } = entry;
        let is_named = self.check_name(name, "input");
        let input = if let Kind::Map(_) = value.kind {
            self.long_input(name, value)
        } else {
            let source = match self.text(value, Shape::Source) {
                Some(text) => self.source(&text),
                None => ParsedSource::Invalid,
            };
            let queue = if let ParsedSource::Timer { .. } = source {
                Queue::LATEST
            } else {
                Queue::DEFAULT
            };
            Some(ParsedInput {
                name: name.clone(),
                source,
                queue,
                type_name: None,
                expect_every: None,
                policy_span: value.span,
            })
        };
        input.filter(|_| is_named)
    }

    fn long_input(&mut self, name: &Text, value: &Value) -> Option<ParsedInput> {
        let keys = self.keys(value, &INPUT, None)?;
        let text = keys
            .get("source")
            .and_then(|entry| self.text(&entry.value, Shape::Source));
        let source = text
            .as_ref()
            .map_or(ParsedSource::Invalid, |text| self.source(text));
        let is_timer = matches!(source, ParsedSource::Timer { .. });
        let policy = keys.get("queue_policy");
        let queue = if is_timer {
            self.timer_queue(&keys)
        } else {
            self.queue(&keys)
        };
        Some(ParsedInput {
            name: name.clone(),
            source,
            queue,
            type_name: keys
                .get("type")
                .and_then(|entry| self.type_name(&entry.value)),
            expect_every: keys
                .get("expect_every")
                .and_then(|entry| self.interval(&entry.value)),
            policy_span: policy.map_or(text.map_or(value.span, |text| text.span), |entry| {
                entry.value.span
            }),
        })
    }

    fn queue(&mut self, keys: &Keys<'_>) -> Queue {
        let policy = keys
            .get("queue_policy")
            .and_then(|entry| self.queue_policy(&entry.value));
        let depth = keys
            .get("queue_size")
            .and_then(|entry| self.queue_size(&entry.value));
        let max_held = keys
            .get("max_held")
            .and_then(|entry| self.unsigned(&entry.value, &MAX_HELD));
        let policy = policy.unwrap_or(Queue::DEFAULT.policy);
        let mut queue = match policy {
            QueuePolicy::Latest => Queue::LATEST,
            _ => Queue::new(policy, depth.unwrap_or(Queue::DEFAULT.depth)),
        };
        if let (QueuePolicy::Latest, Some(entry)) = (policy, keys.get("queue_size")) {
            let finding = Finding::error(
                Code::ConflictingKeys,
                entry.key.span,
                "`queue_size` has no meaning with `queue_policy: latest`",
            )
            .hint("`latest` keeps one sample; remove `queue_size`, or use `drop_oldest`");
            self.findings.push(finding);
        }
        if let (Some(max_held), Some(entry)) = (max_held, keys.get("max_held")) {
            queue.max_held = max_held;
            if max_held <= queue.depth {
                let message = format!(
                    "`max_held` is {max_held} and the queue alone can hold {}",
                    queue.depth
                );
                let finding = Finding::error(Code::ConflictingKeys, entry.value.span, message)
                    .expected(format!("at least {}", queue.depth + 1))
                    .hint("`max_held` counts the samples that wait and those that the node uses; make `queue_size` smaller or `max_held` larger");
                self.findings.push(finding);
            }
        }
        queue
    }

    fn queue_policy(&mut self, value: &Value) -> Option<QueuePolicy> {
        Some(match self.one_of(value, QUEUE_POLICIES)? {
            "drop_newest" => QueuePolicy::DropNewest,
            "block" | "backpressure" => QueuePolicy::Block,
            "latest" => QueuePolicy::Latest,
            _ => QueuePolicy::DropOldest,
        })
    }

    fn queue_size(&mut self, value: &Value) -> Option<u32> {
        if let Kind::Integer(0, _) = value.kind {
            let finding = Finding::error(
                Code::OutOfRange,
                value.span,
                "a queue of 0 would never deliver anything",
            )
            .expected(Shape::Integer(&QUEUE_SIZE).describe())
            .hint(
                "for the newest sample only, remove `queue_size` and write `queue_policy: latest`",
            );
            self.findings.push(finding);
            return None;
        }
        self.unsigned(value, &QUEUE_SIZE)
    }

    /// Ticks are not queued. A `queue_size` is taken, because dora's files have it, and means nothing.
    fn timer_queue(&mut self, keys: &Keys<'_>) -> Queue {
        keys.get("queue_size")
            .map(|entry| self.queue_size(&entry.value));
        if let Some(entry) = keys.get("queue_policy")
            && let Some(QueuePolicy::Block | QueuePolicy::DropNewest) =
                self.queue_policy(&entry.value)
        {
            let finding = Finding::error(
                Code::ConflictingKeys,
                entry.value.span,
                "a timer has no queue to be full",
            )
            .hint(
                "remove `queue_policy`: ticks that the node misses become a count in the next one",
            );
            self.findings.push(finding);
        }
        for (name, why) in [
            ("max_held", "a tick carries no data"),
            ("type", "a tick carries no data"),
            (
                "expect_every",
                "ticks are the node's own, and those that it misses are counted",
            ),
        ] {
            if let Some(entry) = keys.get(name) {
                let finding = Finding::error(
                    Code::ConflictingKeys,
                    entry.key.span,
                    format!("`{name}` has no meaning for a timer"),
                )
                .hint(format!("remove `{name}`: {why}"));
                self.findings.push(finding);
            }
        }
        Queue::LATEST
    }

    /// `node/output`, or a timer.
    fn source(&mut self, text: &Text) -> ParsedSource {
        let parts: Vec<&str> = text.text.splitn(3, '/').collect();
        match parts.as_slice() {
            ["nervure" | "dora", rest @ ..] => self.built_in_source(text, rest),
            [node, output] if !node.is_empty() && !output.is_empty() => {
                if node.contains(':') {
                    let finding = Finding::error(
                        Code::LaterKey,
                        text.span,
                        "outputs of other dataflows are reserved for a later version",
                    )
                    .expected("`node/output`")
                    .hint("until then, put the nodes into one dataflow");
                    self.findings.push(finding);
                    return ParsedSource::Invalid;
                }
                let node_span = within(text, 0, node.len());
                let output_span = within(text, node.len() + 1, text.text.len());
                let node = Text {
                    span: node_span,
                    text: (*node).to_owned(),
                };
                let output = Text {
                    span: output_span,
                    text: (*output).to_owned(),
                };
                if self.check_name(&node, "node id") & self.check_name(&output, "output") {
                    ParsedSource::Output { node, output }
                } else {
                    ParsedSource::Invalid
                }
            }
            [node] | [node, ""] if !node.is_empty() => ParsedSource::Node {
                node: Text {
                    span: text.span,
                    text: (*node).to_owned(),
                },
            },
            ["timer", ..] => self.invalid_timer(
                text,
                "timers are sources of `nervure`",
                Some(&format!("nervure/{}", shown(&text.text))),
            ),
            [_, _, _] => self.invalid_source(
                text,
                "the source has more than two parts",
                Some(
                    "names contain no `/`; an operator of dora becomes a node of its own"
                        .to_owned(),
                ),
            ),
            _ => self.invalid_source(text, "the source names no node", None),
        }
    }

    fn built_in_source(&mut self, text: &Text, rest: &[&str]) -> ParsedSource {
        let timer = match rest {
            ["timer", timer] => timer,
            ["timer"] => "",
            ["logs", ..] => {
                return self.invalid_source(
                    text,
                    "logs are not a source",
                    Some("`nervure run` shows the logs of all nodes".to_owned()),
                );
            }
            _ => {
                return self.invalid_source(
                    text,
                    "there is no such source",
                    Some("timers are written `nervure/timer/hz/30`".to_owned()),
                );
            }
        };
        match parse_timer(timer) {
            Ok(period_nanos) => ParsedSource::Timer { period_nanos },
            Err(error) => {
                let prefix = if text.text.starts_with("dora") {
                    "dora"
                } else {
                    "nervure"
                };
                let suggestion = error
                    .suggestion
                    .map(|timer| format!("{prefix}/timer/{}", shown(&timer)));
                self.invalid_timer(text, &error.message, suggestion.as_deref())
            }
        }
    }

    fn invalid_timer(
        &mut self,
        text: &Text,
        message: &str,
        suggestion: Option<&str>,
    ) -> ParsedSource {
        let finding = Finding::error(Code::InvalidTimer, text.span, message)
            .expected(
                "a timer such as `nervure/timer/hz/30`, `nervure/timer/millis/20` or `nervure/timer/secs/1`",
            )
            .nearest(suggestion, || None);
        self.findings.push(finding);
        ParsedSource::Invalid
    }

    fn invalid_source(&mut self, text: &Text, message: &str, hint: Option<String>) -> ParsedSource {
        let finding = Finding::error(Code::InvalidSource, text.span, message)
            .expected(Shape::Source.describe());
        self.findings.push(match hint {
            Some(hint) => finding.hint(hint),
            None => finding,
        });
        ParsedSource::Invalid
    }

    fn type_name(&mut self, value: &Value) -> Option<Spanned<TypeName>> {
        let text = self.text(value, Shape::Type)?;
        match text.text.parse() {
            Ok(type_name) => Some(Spanned {
                span: text.span,
                value: type_name,
            }),
            Err(message) => {
                let finding = Finding::error(Code::InvalidValue, text.span, message)
                    .expected(Shape::Type.describe());
                self.findings.push(finding);
                None
            }
        }
    }

    /// dora's `input_types` and `output_types`.
    fn types(&mut self, value: &Value) -> Vec<(Text, Spanned<TypeName>)> {
        let entries = self
            .entries(value, Shape::Types, Code::DuplicateKey, "name")
            .unwrap_or_default();
        entries
            .iter()
            .filter_map(|entry| Some((entry.key.clone(), self.type_name(&entry.value)?)))
            .collect()
    }

    /// Gives each port its type from `types`; `what` is "input" or "output".
    fn assign_types(
        &mut self,
        ports: Vec<(&Text, &mut Option<Spanned<TypeName>>)>,
        types: Vec<(Text, Spanned<TypeName>)>,
        what: &str,
    ) {
        let mut ports: BTreeMap<&str, _> = ports
            .into_iter()
            .map(|(name, type_name)| (name.text.as_str(), type_name))
            .collect();
        for (name, type_name) in types {
            let Some(current) = ports.get_mut(name.text.as_str()) else {
                self.findings.push_error_with(|| {
                    let near = nearest(&name.text, ports.keys().copied());
                    let code = if what == "output" {
                        Code::UnknownOutput
                    } else {
                        Code::UnknownInput
                    };
                    let message = format!("the node has no {what} {}", quoted(&name.text));
                    let otherwise = || Some(format!("add it to `{what}s`, or remove its type"));
                    Finding::error(code, name.span, message).nearest(near, otherwise)
                });
                continue;
            };
            match current {
                None => **current = Some(type_name),
                Some(first) if first.value == type_name.value => {}
                Some(first) => {
                    let (one, other) = (&first.value, &type_name.value);
                    let message = format!(
                        "the {what} {} has two types, `{one}` and `{other}`",
                        quoted(&name.text)
                    );
                    let finding = Finding::error(Code::ConflictingKeys, type_name.span, message)
                        .hint(format!("remove it here: `type` in `{what}s` is enough"))
                        .related(first.span, "first here");
                    self.findings.push(finding);
                }
            }
        }
    }
}

/// Whether the inputs or outputs (`key`) stand inside of a key that was refused.
fn has_ports_elsewhere(node: &Keys<'_>, key: &str) -> bool {
    node.is_refused(key)
        || OTHER_KINDS_OF_NODES
            .iter()
            .any(|name| node.is_refused(name))
}

/// The part of `text` from byte `start` to `end`; all of it if it is quoted or folded, and bytes do not match.
fn within(text: &Text, start: usize, end: usize) -> Span {
    if text.span.end - text.span.start != text.text.len() {
        return text.span;
    }
    Span {
        start: text.span.start + start,
        end: text.span.start + end,
    }
}
