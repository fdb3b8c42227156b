//! Differences of two definitions of a type.

use std::fmt;

use serde::Serialize;

use crate::definition::{Constant, Definition, Field, Kind};

/// A difference between an older and a newer definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The field or constant, such as `pose.covariance`; empty for the whole type.
    pub path: String,
    /// What differs there.
    pub change: Change,
}

/// What differs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Only the newer definition has the field.
    Added {
        /// Its type.
        kind: String,
        /// Whether it may be absent.
        is_optional: bool,
    },
    /// Only the older definition has the field.
    Removed {
        /// Its type.
        kind: String,
    },
    /// A part is written in two ways.
    Changed {
        /// The part.
        part: Part,
        /// In the older definition.
        older: String,
        /// In the newer definition.
        newer: String,
    },
    /// Only the newer definition has the constant.
    ConstantAdded,
}

/// A part of a field, constant or type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The type of a field.
    Kind,
    /// Whether a field may be absent.
    Presence,
    /// The default of a field.
    Default,
    /// The tensors that a field may be.
    Tensors,
    /// The value of a constant, or that there is none any more.
    Value,
    /// The field that is the whole payload.
    Payload,
}

/// All differences, in the order of the newer definition. Comments and the order of fields do not
/// matter: fields have names.
pub fn compare(older: &Definition, newer: &Definition) -> Vec<Difference> {
    let mut comparison = Comparison {
        path: String::new(),
        found: Vec::new(),
    };
    comparison.definitions(older, newer);
    comparison.found
}

impl Difference {
    /// Whether programs with either definition understand each other's samples, so that the version
    /// may stay: only an additional optional field, and an additional constant.
    pub fn is_compatible(&self) -> bool {
        match self.change {
            Change::Added { is_optional, .. } => is_optional,
            Change::ConstantAdded => true,
            Change::Removed { .. } | Change::Changed { .. } => false,
        }
    }
}

/// A field of two definitions, side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedField {
    /// The field or constant, such as `pose.covariance`; empty for the whole type.
    pub path: String,
    /// Its type in each definition, or another part that differs; `-` in one without it.
    pub types: [String; 2],
    /// Whether the definitions differ here.
    pub differs: bool,
}

/// Two definitions, side by side: their fields, and what differs inside them.
pub fn side_by_side(first: &Definition, second: &Definition) -> Vec<ComparedField> {
    let mut differences = compare(first, second);
    let mut compared = Vec::new();
    for field in &first.fields {
        let inside = format!("{}.", field.name);
        let is_here =
            |found: &mut Difference| found.path == field.name || found.path.starts_with(&inside);
        let here: Vec<Difference> = differences.extract_if(.., is_here).collect();
        if !here.iter().any(|found| found.path == field.name) {
            compared.push(ComparedField {
                path: field.name.clone(),
                types: [field.kind.to_string(), field.kind.to_string()],
                differs: false,
            });
        }
        compared.extend(here.into_iter().map(ComparedField::from));
    }
    // Fields of the second one, constants, and the payload.
    compared.extend(differences.into_iter().map(ComparedField::from));
    compared
}

impl ComparedField {
    /// The field or constant, for messages.
    pub fn name(&self) -> &str {
        name_of(&self.path)
    }
}

impl From<Difference> for ComparedField {
    fn from(found: Difference) -> Self {
        let none = || "-".to_owned();
        let types = match found.change {
            Change::Added { kind, .. } => [none(), kind],
            Change::Removed { kind } => [kind, none()],
            Change::Changed {
                part: Part::Kind,
                older,
                newer,
            } => [older, newer],
            Change::Changed { part, older, newer } => {
                [older, newer].map(|value| format!("{part} {value}"))
            }
            Change::ConstantAdded => [none(), "constant".to_owned()],
        };
        Self {
            path: found.path,
            types,
            differs: true,
        }
    }
}

struct Comparison {
    path: String,
    found: Vec<Difference>,
}

impl Comparison {
    fn definitions(&mut self, older: &Definition, newer: &Definition) {
        let payload = |definition: &Definition| {
            definition
                .facts
                .payload
                .clone()
                .unwrap_or_else(|| "none".to_owned())
        };
        self.part(Part::Payload, payload(older), payload(newer));
        for field in &newer.fields {
            let known = older.fields.iter().find(|known| known.name == field.name);
            self.within(&field.name, |inner| match known {
                Some(known) => inner.fields(known, field),
                None => inner.push(Change::Added {
                    kind: field.kind.to_string(),
                    is_optional: field.is_optional,
                }),
            });
        }
        let is_removed = |field: &&Field| newer.fields.iter().all(|known| known.name != field.name);
        for field in older.fields.iter().filter(is_removed) {
            let kind = field.kind.to_string();
            self.within(&field.name, |inner| inner.push(Change::Removed { kind }));
        }
        self.constants(&older.constants, &newer.constants);
    }

    fn fields(&mut self, older: &Field, newer: &Field) {
        let presence = |field: &Field| {
            if field.is_optional {
                "optional"
            } else {
                "required"
            }
            .to_owned()
        };
        self.part(Part::Presence, presence(older), presence(newer));
        let default = |field: &Field| {
            let default = field.default.as_ref().map(ToString::to_string);
            default.unwrap_or_else(|| "none".to_owned())
        };
        self.part(Part::Default, default(older), default(newer));
        let tensors = |field: &Field| {
            let rules: Vec<String> = field.tensors.iter().map(ToString::to_string).collect();
            rules.join("; ")
        };
        self.part(Part::Tensors, tensors(older), tensors(newer));
        self.kinds(&older.kind, &newer.kind);
    }

    fn kinds(&mut self, older: &Kind, newer: &Kind) {
        match (older, newer) {
            (Kind::Message(older), Kind::Message(newer)) => self.definitions(older, newer),
            (Kind::Array(older, first), Kind::Array(newer, second)) if first == second => {
                self.kinds(older, newer)
            }
            (Kind::Sequence(older, first), Kind::Sequence(newer, second)) if first == second => {
                self.kinds(older, newer);
            }
            _ => self.part(Part::Kind, older.to_string(), newer.to_string()),
        }
    }

    fn constants(&mut self, older: &[Constant], newer: &[Constant]) {
        for constant in newer {
            let known = older.iter().find(|known| known.name == constant.name);
            self.within(&constant.name, |inner| match known {
                Some(known) => inner.part(
                    Part::Value,
                    known.value.to_string(),
                    constant.value.to_string(),
                ),
                None => inner.push(Change::ConstantAdded),
            });
        }
        for constant in older {
            if newer.iter().all(|known| known.name != constant.name) {
                let older = constant.value.to_string();
                self.within(&constant.name, |inner| {
                    inner.part(Part::Value, older, "none".to_owned())
                });
            }
        }
    }

    fn within(&mut self, name: &str, compare: impl FnOnce(&mut Self)) {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        compare(self);
        self.path.truncate(outer);
    }

    fn part(&mut self, part: Part, older: String, newer: String) {
        if older != newer {
            self.push(Change::Changed { part, older, newer });
        }
    }

    fn push(&mut self, change: Change) {
        let path = self.path.clone();
        self.found.push(Difference { path, change });
    }
}

fn name_of(path: &str) -> &str {
    match path {
        "" => "the type",
        path => path,
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = name_of(&self.path);
        match &self.change {
            Change::Added {
                kind,
                is_optional: true,
            } => write!(f, "{path}: added, optional `{kind}`"),
            Change::Added { kind, .. } => write!(f, "{path}: added, required `{kind}`"),
            Change::Removed { kind } => write!(f, "{path}: removed, was `{kind}`"),
            Change::Changed { part, older, newer } => {
                write!(f, "{path}: {part} `{older}`, then `{newer}`")
            }
            Change::ConstantAdded => write!(f, "{path}: added, a constant"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "type",
            Self::Presence => "presence",
            Self::Default => "default",
            Self::Tensors => "tensors",
            Self::Value => "value",
            Self::Payload => "payload",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Format, Library, Sections, standard_names, standard_type};

    fn definition(text: &str, sidecar: &str) -> Arc<Definition> {
        let mut sections = Sections::default();
        for (name, text) in [("a/Pose", text), ("a/Point", "float64 x\nfloat64 y\n")] {
            sections
                .add_file(Format::Message, name, name, text.as_bytes())
                .unwrap();
        }
        sections
            .add_sidecar("a/Pose", "a/Pose.toml", sidecar)
            .unwrap();
        Library::new(&[&sections]).definition("a/Pose").unwrap()
    }

    fn differences(older: &str, newer: &str, sidecar: &str) -> Vec<(String, bool)> {
        let found = compare(&definition(older, ""), &definition(newer, sidecar));
        found
            .iter()
            .map(|found| (found.to_string(), found.is_compatible()))
            .collect()
    }

    #[test]
    fn only_optional_fields_and_constants_keep_the_version() {
        const OLDER: &str = "Point position\nfloat64[9] covariance\nuint8 OK=0\nuint8 state 1\n";
        let optional = "[fields.extra]\noptional = true";
        for (newer, sidecar, expected, is_compatible) in [
            (
                "# other\nuint8 state 1\nuint8 OK=0\nPoint position\nfloat64[9] covariance\n",
                "",
                "",
                true,
            ),
            (
                "float64 extra\n",
                optional,
                "extra: added, optional `float64`",
                true,
            ),
            ("uint8 BAD=1\n", "", "BAD: added, a constant", true),
            (
                "float64 extra\n",
                "",
                "extra: added, required `float64`",
                false,
            ),
        ] {
            let newer = match expected {
                "" => newer.to_owned(),
                _ => format!("{OLDER}{newer}"),
            };
            let expected: Vec<_> = (!expected.is_empty())
                .then(|| (expected.to_owned(), is_compatible))
                .into_iter()
                .collect();
            assert_eq!(differences(OLDER, &newer, sidecar), expected);
        }
        for (from, to, expected) in [
            ("Point position\n", "", "position: removed, was `a/Point`"),
            (
                "[9]",
                "[6]",
                "covariance: type `float64[9]`, then `float64[6]`",
            ),
            (
                "[9]",
                "[]",
                "covariance: type `float64[9]`, then `float64[]`",
            ),
            (
                "Point",
                "float64",
                "position: type `a/Point`, then `float64`",
            ),
            ("OK=0", "OK=1", "OK: value `0`, then `1`"),
            ("uint8 OK=0\n", "", "OK: value `0`, then `none`"),
            ("state 1", "state 2", "state: default `1`, then `2`"),
        ] {
            let newer = OLDER.replace(from, to);
            assert_eq!(
                differences(OLDER, &newer, ""),
                [(expected.to_owned(), false)]
            );
        }
    }

    #[test]
    fn differences_in_a_nested_type_have_its_path() {
        let older = Kind::Message(definition("Point position\n", ""));
        let mut inner =
            Arc::unwrap_or_clone(match &definition("Point position\n", "").fields[0].kind {
                Kind::Message(point) => point.clone(),
                other => panic!("{other}"),
            });
        inner.fields[1].is_optional = true;
        let mut outer = Arc::unwrap_or_clone(definition("Point position\n", ""));
        outer.fields[0].kind = Kind::Message(Arc::new(inner));
        let Kind::Message(older) = older else {
            unreachable!()
        };
        let found = compare(&older, &outer);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "position.y: presence `required`, then `optional`"
        );
    }

    #[test]
    fn definitions_stand_side_by_side() {
        let first = definition("string name\nPoint at\nfloat64[9] c\nuint8 old\n", "");
        let second = definition(
            "Point at\nfloat64[6] c\nstring name\nbool new\nuint8 OK=0\n",
            "",
        );
        let rows: Vec<_> = side_by_side(&first, &second)
            .into_iter()
            .map(|row| (row.path, row.types.join(" | "), row.differs))
            .collect();
        let expected = [
            ("name", "string | string", false),
            ("at", "a/Point | a/Point", false),
            ("c", "float64[9] | float64[6]", true),
            ("old", "uint8 | -", true),
            ("new", "- | bool", true),
            ("OK", "- | constant", true),
        ];
        assert_eq!(
            rows,
            expected.map(|(path, types, differs)| (path.to_owned(), types.to_owned(), differs))
        );
    }

    #[test]
    fn a_type_equals_itself() {
        for name in standard_names() {
            let definition = standard_type(&name).unwrap();
            assert_eq!(compare(&definition, &definition), []);
        }
    }
}
