//! Reads the parameters of a node.

use nervure_protocol::params::{MAX_NODE_PARAMS_BYTES, ParamKind, ParamSpec, is_less};
use serde_json::{Number, Value as Json};

use crate::diagnostic::{Code, Finding};
use crate::keys::{PARAM, PARAM_TYPES, Shape};
use crate::quote::quoted;
use crate::read_variables::Filled;
use crate::reader::{Keys, Reader};
use crate::tree::{Entry, Kind, Value};

impl Reader<'_> {
    pub fn params(&mut self, value: &Value) -> Vec<ParamSpec> {
        let entries = self
            .entries(value, Shape::Params, Code::DuplicateKey, "parameter")
            .unwrap_or_default();
        let params: Vec<_> = entries
            .iter()
            .filter_map(|entry| self.param(entry))
            .collect();
        let bytes = serde_json::to_vec(&params).map_or(usize::MAX, |json| json.len());
        if bytes > MAX_NODE_PARAMS_BYTES {
            let message = format!("the parameters take {bytes} bytes as JSON");
            let finding = Finding::error(Code::OutOfRange, value.span, message)
                .expected(format!("at most {MAX_NODE_PARAMS_BYTES}"))
                .hint("put data into files, and their names into parameters");
            self.findings.push(finding);
        }
        params
    }

    fn param(&mut self, entry: &Entry) -> Option<ParamSpec> {
        let Entry { key: name, value } = entry;
        let is_named = self.check_name(name, "parameter");
        let spec = match &value.kind {
            Kind::Map(_) => {
                let keys = self.keys(
                    value,
                    &PARAM,
                    Some("write `{value: 30, min: 1, max: 60}`, for example"),
                )?;
                self.long_param(&name.text, &keys)
            }
            _ => {
                let (initial, kind) = self.param_value(value, Filled::ByQuotes)?;
                self.checked(plain(&name.text, kind, initial), value)
            }
        };
        spec.filter(|_| is_named)
    }

    fn long_param(&mut self, name: &str, keys: &Keys<'_>) -> Option<ParamSpec> {
        let entry = keys.get("value");
        let kind = keys
            .get("type")
            .map(|entry| self.one_of(&entry.value, PARAM_TYPES));
        let filled = match kind {
            Some(Some("str")) => Filled::Text,
            Some(Some("bool" | "int" | "float")) => Filled::Scalar,
            _ => Filled::ByQuotes,
        };
        let value = entry.and_then(|entry| self.param_value(&entry.value, filled));
        let (min, max) = (self.bound(keys, "min"), self.bound(keys, "max"));
        let one_of = keys
            .get("one_of")
            .map(|entry| self.choices(&entry.value, filled));
        let read_only = keys
            .get("read_only")
            .and_then(|entry| self.truth(&entry.value));
        let description = keys
            .get("description")
            .and_then(|entry| self.text(&entry.value, Shape::Words));
        let (initial, natural) = value?;
        let kind = match kind {
            Some(word) => kind_of(word?),
            None => natural,
        };
        if let (Some(least), Some(most), Some(entry)) = (&min, &max, keys.get("max"))
            && is_less(most, least)
        {
            let message = format!("`max` is {most} and `min` is {least}");
            self.findings.push(Finding::error(
                Code::ConflictingKeys,
                entry.value.span,
                message,
            ));
            return None;
        }
        for bound in ["min", "max"] {
            let is_text = matches!(kind, ParamKind::Bool | ParamKind::Str);
            if let Some(entry) = keys.get(bound).filter(|_| is_text) {
                let message = format!(
                    "`{bound}` has no meaning for a parameter of type {}",
                    kind.as_str()
                );
                let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message);
                self.findings
                    .push(finding.hint("remove it; `one_of` lists the values that are possible"));
                return None;
            }
        }
        let mut spec = ParamSpec {
            min,
            max,
            read_only: read_only.unwrap_or(false),
            description: description.map(|text| text.text),
            ..plain(name, kind, initial)
        };
        // Each choice is one of the type and within the bounds; then the value is one of the choices.
        if let Some(choices) = one_of {
            let choices = choices?;
            let accepted: Vec<_> = choices
                .iter()
                .map(|(at, choice)| self.accepted(&spec, choice, at))
                .collect();
            spec.one_of = accepted.into_iter().collect::<Option<_>>()?;
        }
        self.checked(spec, &entry?.value)
    }

    /// A value and its natural type.
    fn param_value(&mut self, value: &Value, filled: Filled) -> Option<(Json, ParamKind)> {
        let value = &self.expanded_value(value, filled)?;
        let kind = match &value.kind {
            Kind::Map(_) | Kind::Null => None,
            _ => Some(self.json(value)?),
        };
        let found = kind.and_then(|json| ParamKind::of(&json).map(|kind| (json, kind)));
        if found.is_none() {
            let finding = self.wrong_type(value, &Shape::ParamValue.describe());
            self.findings.push(finding);
        }
        found
    }

    fn bound(&mut self, keys: &Keys<'_>, name: &str) -> Option<Number> {
        let entry = keys.get(name)?;
        match self.json(&entry.value)? {
            Json::Number(number) => Some(number),
            _ => {
                let finding = self.wrong_type(&entry.value, &Shape::Number.describe());
                self.findings.push(finding);
                None
            }
        }
    }

    fn choices<'t>(&mut self, value: &'t Value, filled: Filled) -> Option<Vec<(&'t Value, Json)>> {
        match &value.kind {
            Kind::List(items) if !items.is_empty() => {
                let choices: Vec<_> = items
                    .iter()
                    .map(|item| Some((item, self.param_value(item, filled)?.0)))
                    .collect();
                choices.into_iter().collect()
            }
            _ => {
                let finding = self.wrong_type(value, &Shape::ParamValues.describe());
                self.findings.push(finding);
                None
            }
        }
    }

    fn checked(&mut self, spec: ParamSpec, at: &Value) -> Option<ParamSpec> {
        let value = self.accepted(&spec, &spec.value, at)?;
        Some(ParamSpec { value, ..spec })
    }

    fn accepted(&mut self, spec: &ParamSpec, value: &Json, at: &Value) -> Option<Json> {
        match spec.accept(value.clone()) {
            Ok(value) => Some(value),
            Err(error) => {
                let finding = Finding::error(Code::InvalidValue, at.span, error.to_string());
                let quotes = match &at.kind {
                    Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Boolean(_, text)
                        if spec.kind == ParamKind::Str =>
                    {
                        Some(format!(
                            "to use it as text, put it into quotes: {}",
                            quoted(&format!("\"{text}\""))
                        ))
                    }
                    _ => None,
                };
                self.findings.push(match quotes {
                    Some(hint) => finding.hint(hint),
                    None => finding,
                });
                None
            }
        }
    }
}

fn plain(name: &str, kind: ParamKind, value: Json) -> ParamSpec {
    ParamSpec {
        name: name.to_owned(),
        kind,
        value,
        min: None,
        max: None,
        one_of: Vec::new(),
        read_only: false,
        description: None,
    }
}

fn kind_of(word: &str) -> ParamKind {
    match word {
        "bool" => ParamKind::Bool,
        "int" => ParamKind::Int,
        "float" => ParamKind::Float,
        "str" => ParamKind::Str,
        _ => ParamKind::List,
    }
}
