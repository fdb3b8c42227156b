//! Reads the keys of a node.

use std::time::Duration;

use nervure_protocol::nearest;

use crate::diagnostic::{Code, Finding};
use crate::graph::{LoopDeadline, Ready, Restart, RestartPolicy, Scheduling};
use crate::keys::{
    LOOP, MAX_RESTARTS, NICE, NODE, PRIORITY, PROCESSOR, READY, RESTART_POLICIES, SCHEDULING,
    SCHEDULING_POLICIES, Shape,
};
use crate::parsed::{ParsedInput, ParsedNode};
use crate::quote::{listed, quoted};
use crate::reader::{Keys, Reader};
use crate::tree::{Kind, Value};

/// Ids that begin the names of timers.
const RESERVED_IDS: &[&str] = &["nervure", "dora"];

impl Reader<'_> {
    pub fn node(&mut self, value: &Value) -> Option<ParsedNode> {
        let keys = self.keys(
            value,
            &NODE,
            Some("write each node as `- id: camera`, followed by its other keys"),
        )?;
        let id = keys
            .get("id")
            .and_then(|entry| self.name(&entry.value, "node id"));
        if let Some(id) = id
            .as_ref()
            .filter(|id| RESERVED_IDS.contains(&id.text.as_str()))
        {
            let finding = Finding::error(
                Code::InvalidName,
                id.span,
                format!("the node id `{}` is reserved", id.text),
            )
            .hint(format!(
                "`{0}/timer/..` names timers; call the node `{0}-node`, for example",
                id.text
            ));
            self.findings.push(finding);
        }
        let (inputs, inputs_complete) = self.inputs(&keys);
        let (outputs, outputs_complete) = self.outputs(&keys);
        let loop_deadline = keys
            .get("loop")
            .and_then(|entry| self.loop_deadline(&entry.value, &inputs, inputs_complete));
        let on_failure = keys
            .get("on_failure")
            .map(|entry| self.last_values(&entry.value, &outputs, outputs_complete))
            .unwrap_or_default();
        let (services, services_complete) = self.services(&keys);
        let clients = keys
            .get_some("clients")
            .map(|entry| self.clients(&entry.value))
            .unwrap_or_default();
        let startup_timeout = self.timeout(&keys, "startup_timeout");
        let connects = !inputs.is_empty()
            || !outputs.is_empty()
            || !inputs_complete
            || !outputs_complete
            || !services.is_empty()
            || !clients.is_empty();
        if let (false, Some(entry)) = (connects, keys.get("startup_timeout")) {
            let message =
                "`startup_timeout` has no effect: a node without inputs and outputs never connects";
            let finding = Finding::warning(Code::UselessKey, entry.key.span, message);
            self.findings.push(finding.hint("remove it"));
        }
        Some(ParsedNode {
            id,
            span: value.span,
            name: keys
                .get("name")
                .and_then(|entry| self.text(&entry.value, Shape::Words))
                .map(|text| text.text),
            description: keys
                .get("description")
                .and_then(|entry| self.text(&entry.value, Shape::Words))
                .map(|text| text.text),
            program: self.program(&keys),
            args: keys
                .get_some("args")
                .map(|entry| self.arguments(&entry.value))
                .unwrap_or_default(),
            env: keys
                .get_some("env")
                .map(|entry| self.environment(&entry.value))
                .unwrap_or_default(),
            build: keys
                .get_some("build")
                .and_then(|entry| self.build(&entry.value)),
            inputs,
            inputs_complete,
            outputs,
            outputs_complete,
            restart: self.restart(&keys),
            startup_timeout,
            health_check_timeout: self.timeout(&keys, "health_check_timeout"),
            params: keys
                .get_some("params")
                .map(|entry| self.params(&entry.value))
                .unwrap_or_default(),
            services,
            services_complete,
            clients,
            on_failure,
            cpu_affinity: keys
                .get("cpu_affinity")
                .map(|entry| self.processors(&entry.value))
                .unwrap_or_default(),
            scheduling: keys
                .get("scheduling")
                .map(|entry| self.scheduling(&entry.value))
                .unwrap_or_default(),
            ready: self.ready(&keys),
            loop_deadline,
            shared_memory: keys.get("shared_memory").and_then(|entry| {
                // dora's key allows a bare number of bytes; ours wants the unit.
                let size = self.size(&entry.value, entry.key.text != "shared_memory");
                size.filter(|&bytes| self.check_shared_memory(&entry.value, bytes))
            }),
        })
    }

    fn build(&mut self, value: &Value) -> Option<String> {
        if let Kind::List(_) = value.kind {
            let finding = self.wrong_type(value, &Shape::Words.describe());
            self.findings
                .push(finding.hint(
                    "for several commands write `build: |`, and below it one command a line",
                ));
            return None;
        }
        self.text(value, Shape::Words).map(|text| text.text)
    }

    fn check_shared_memory(&mut self, value: &Value, bytes: u64) -> bool {
        const LEAST_BYTES: u64 = 1_000_000;
        if bytes < LEAST_BYTES {
            let finding = Finding::error(
                Code::OutOfRange,
                value.span,
                "this is too little to send anything",
            )
            .expected("at least 1MB");
            self.findings.push(finding);
        }
        bytes >= LEAST_BYTES
    }

    fn ready(&mut self, keys: &Keys<'_>) -> Ready {
        match keys
            .get("ready")
            .and_then(|entry| self.one_of(&entry.value, READY))
        {
            Some("manual") => Ready::Manual,
            _ => Ready::Auto,
        }
    }

    fn restart(&mut self, keys: &Keys<'_>) -> Restart {
        let default = Restart::default();
        let policy = keys.get("restart_policy").map(|entry| {
            match self.one_of(&entry.value, RESTART_POLICIES) {
                Some("on-failure") => RestartPolicy::OnFailure,
                Some("always") => RestartPolicy::Always,
                _ => RestartPolicy::Never,
            }
        });
        let delay = keys
            .get("restart_delay")
            .and_then(|entry| self.duration(&entry.value));
        let max_delay = keys
            .get("max_restart_delay")
            .and_then(|entry| self.duration(&entry.value));
        let max_restarts = keys
            .get("max_restarts")
            .and_then(|entry| self.unsigned(&entry.value, &MAX_RESTARTS));
        let window = keys
            .get("restart_window")
            .and_then(|entry| self.duration(&entry.value));
        if policy.is_none() {
            self.useless_restart_keys(keys);
        }
        let delay_or_default = delay.unwrap_or(default.delay);
        if let (Some(max_delay), Some(entry)) = (max_delay, keys.get("max_restart_delay"))
            && max_delay < delay_or_default
        {
            let message = format!(
                "the longest delay, {max_delay:?}, is shorter than the first, {delay_or_default:?}"
            );
            let finding = Finding::error(Code::ConflictingKeys, entry.value.span, message)
                .hint("`restart_delay` is the first wait, `max_restart_delay` the longest");
            self.findings.push(finding);
        }
        Restart {
            policy: policy.unwrap_or(default.policy),
            delay: delay_or_default,
            max_delay: max_delay.unwrap_or(default.max_delay.max(delay_or_default)),
            max_restarts: max_restarts.filter(|&restarts| restarts > 0),
            window: window.filter(|window| !window.is_zero()),
        }
    }

    /// A duration within which a process can do something.
    fn timeout(&mut self, keys: &Keys<'_>, name: &str) -> Option<Duration> {
        const SHORTEST: Duration = Duration::from_millis(10);
        let entry = keys.get(name)?;
        let timeout = self.duration(&entry.value)?;
        if timeout < SHORTEST {
            let message = format!("{timeout:?} is too short for `{name}`");
            let finding = Finding::error(Code::OutOfRange, entry.value.span, message)
                .expected("at least 10ms")
                .hint(format!("leave `{name}` out for no limit"));
            self.findings.push(finding);
            return None;
        }
        Some(timeout)
    }

    fn useless_restart_keys(&mut self, keys: &Keys<'_>) {
        for name in [
            "restart_delay",
            "max_restart_delay",
            "max_restarts",
            "restart_window",
        ] {
            if let Some(entry) = keys.get(name) {
                let message = format!("`{name}` has no effect: the node is never restarted");
                let finding = Finding::warning(Code::UselessKey, entry.key.span, message)
                    .hint("add `restart_policy: on-failure` or `restart_policy: always`");
                self.findings.push(finding);
            }
        }
    }

    fn loop_deadline(
        &mut self,
        value: &Value,
        inputs: &[ParsedInput],
        inputs_complete: bool,
    ) -> Option<LoopDeadline> {
        let keys = self.keys(
            value,
            &LOOP,
            Some("write `{input: tick, finish_within: 2ms}`, for example"),
        )?;
        let finish_within = keys
            .get("finish_within")
            .and_then(|entry| self.interval(&entry.value));
        let name = keys
            .get("input")
            .and_then(|entry| self.text(&entry.value, Shape::Name))?;
        let input = inputs.iter().position(|input| input.name.text == name.text);
        // What could not be read may be this input.
        if input.is_none() && inputs_complete {
            let names = || inputs.iter().map(|input| input.name.text.as_str());
            let message = format!("the node has no input {}", quoted(&name.text));
            let finding = Finding::error(Code::UnknownInput, name.span, message).nearest(
                nearest(&name.text, names()),
                || match inputs {
                    [] => Some(
                        "the node has no inputs: add a timer, `tick: nervure/timer/hz/200`"
                            .to_owned(),
                    ),
                    _ => Some(format!("its inputs are {}", listed(names()))),
                },
            );
            self.findings.push(finding);
        }
        Some(LoopDeadline {
            input: input?,
            finish_within: finish_within?,
        })
    }

    fn processors(&mut self, value: &Value) -> Vec<u32> {
        let Kind::List(items) = &value.kind else {
            let finding = self.wrong_type(value, &Shape::Processors.describe());
            self.findings.push(match &value.kind {
                Kind::Integer(_, text) => finding.hint(format!("write `[{text}]`")),
                _ => finding,
            });
            return Vec::new();
        };
        if items.is_empty() {
            let finding = Finding::error(
                Code::InvalidValue,
                value.span,
                "the node may run on no processor",
            )
            .expected(Shape::Processors.describe())
            .hint("leave `cpu_affinity` out to let the node run on all");
            self.findings.push(finding);
        }
        let mut processors: Vec<u32> = items
            .iter()
            .filter_map(|item| self.unsigned(item, &PROCESSOR))
            .collect();
        processors.sort_unstable();
        processors.dedup();
        processors
    }

    fn scheduling(&mut self, value: &Value) -> Scheduling {
        let hint = "write `{policy: fifo, priority: 80}`, for example";
        let Some(keys) = self.keys(value, &SCHEDULING, Some(hint)) else {
            return Scheduling::Inherited;
        };
        let policy = keys
            .get("policy")
            .and_then(|entry| self.one_of(&entry.value, SCHEDULING_POLICIES));
        let priority = keys
            .get("priority")
            .and_then(|entry| self.integer(&entry.value, &PRIORITY));
        let nice = keys
            .get("nice")
            .and_then(|entry| self.integer(&entry.value, &NICE));
        let Some(policy) = policy else {
            return Scheduling::Inherited;
        };
        let (belongs, other) = if policy == "other" {
            ("nice", "priority")
        } else {
            ("priority", "nice")
        };
        if let Some(entry) = keys.get(other) {
            let message = format!("`{other}` has no meaning with `policy: {policy}`");
            let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message)
                .hint(format!("use `{belongs}`, or another policy"));
            self.findings.push(finding);
        }
        if policy == "other" {
            return Scheduling::Other {
                nice: nice.and_then(|nice| i8::try_from(nice).ok()).unwrap_or(0),
            };
        }
        if keys.get("priority").is_none() {
            let finding = Finding::error(
                Code::MissingKey,
                keys.span,
                format!("`policy: {policy}` needs a `priority`"),
            )
            .hint("add `priority:` with a number from 1 to 99, 99 being the most urgent");
            self.findings.push(finding);
        }
        let Some(priority) = priority.and_then(|priority| u8::try_from(priority).ok()) else {
            return Scheduling::Inherited;
        };
        match policy {
            "fifo" => Scheduling::Fifo { priority },
            _ => Scheduling::RoundRobin { priority },
        }
    }
}
