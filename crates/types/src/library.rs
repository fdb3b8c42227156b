//! From the texts of definitions to types: names are looked up in several sources, in order.

use std::collections::HashMap;
use std::sync::Arc;

use crate::definition::{Constant, Definition, Facts, Field, Kind, Number, plain_name};
use crate::error::{DefinitionError, MAX_DEPTH, MAX_FIELDS, SyntaxError, shortened};
use crate::line::{FieldLine, Item, ListText, hint_for_type};
use crate::sections::Sections;

/// Reads types from the first source that has them.
#[derive(Debug)]
pub struct Library<'a> {
    sources: &'a [&'a Sections],
    known: HashMap<String, Arc<Definition>>,
}

impl<'a> Library<'a> {
    /// A library of these sources, of which earlier ones take precedence.
    pub fn new(sources: &'a [&'a Sections]) -> Self {
        Self {
            sources,
            known: HashMap::new(),
        }
    }

    /// The type `name` (`package/Name`).
    ///
    /// # Errors
    /// [`DefinitionError`].
    pub fn definition(&mut self, name: &str) -> Result<Arc<Definition>, DefinitionError> {
        self.resolve(name, MAX_DEPTH)
    }

    fn has(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.has(name))
    }

    fn resolve(&mut self, name: &str, depth: usize) -> Result<Arc<Definition>, DefinitionError> {
        if let Some(known) = self.known.get(name) {
            return Ok(known.clone());
        }
        if depth == 0 {
            return Err(DefinitionError::Depth {
                name: name.to_owned(),
            });
        }
        let section = self.sources.iter().find_map(|source| source.section(name));
        let section = section.ok_or_else(|| DefinitionError::Unknown {
            name: shortened(name),
            hint: self.nearest(name),
        })?;
        let mut definition = Definition {
            name: name.to_owned(),
            fields: Vec::new(),
            constants: Vec::new(),
            comment: section.comment.clone(),
            facts: Facts::default(),
            weight: 0,
        };
        for line in &section.lines {
            match &line.item {
                Err(error) => return Err(error.clone().into()),
                Ok(Item::Field(field)) => {
                    let kind = self.kind(name, field, depth)?;
                    definition.add(field, kind, &line.comment)?;
                }
                // An invalid value does not matter to messages: `Sections::errors` has it.
                Ok(Item::Constant(constant)) => {
                    if let Ok(value) = &constant.value {
                        definition.constants.push(Constant {
                            name: constant.name.clone(),
                            kind: constant.kind.clone(),
                            value: value.clone(),
                            comment: line.comment.clone(),
                        });
                    }
                }
            }
        }
        section.sidecar.apply(&mut definition);
        let definition = Arc::new(definition);
        self.known.insert(name.to_owned(), definition.clone());
        Ok(definition)
    }

    /// The type of a field of `message`.
    fn kind(
        &mut self,
        message: &str,
        field: &FieldLine,
        depth: usize,
    ) -> Result<Kind, DefinitionError> {
        let text = &field.kind;
        let mut kind = match text.base.as_str() {
            "bool" => Kind::Bool,
            "string" => Kind::Text(text.most_bytes),
            "wstring" => {
                return Err(not_known(
                    field,
                    "wstring",
                    "`string`: `wstring` is encoded in several ways",
                    None,
                ));
            }
            base => match Number::named(base) {
                Some(number) => Kind::Number(number),
                None => Kind::Message(self.message(message, field, depth)?),
            },
        };
        for list in &text.lists {
            kind = match list {
                ListText::Exactly(count) => Kind::Array(Box::new(kind), *count),
                ListText::AtMost(most) => Kind::Sequence(Box::new(kind), Some(*most)),
                ListText::Any => Kind::Sequence(Box::new(kind), None),
            };
        }
        Ok(kind)
    }

    /// The message in a field of `message`.
    fn message(
        &mut self,
        message: &str,
        field: &FieldLine,
        depth: usize,
    ) -> Result<Arc<Definition>, DefinitionError> {
        let name = self.full_name(message, &field.kind.base);
        if self.has(&name) {
            return self.resolve(&name, depth - 1);
        }
        let written = &field.kind.base;
        let hint = match written.contains('/') {
            true => self.nearest(&name),
            false => self.nearest(written),
        };
        Err(not_known(field, &name, "a type with a definition", hint))
    }

    /// A hint with the name that is most similar to an unknown one.
    fn nearest(&self, name: &str) -> Option<String> {
        let names = self.sources.iter().flat_map(|source| source.names());
        let shown = |known: &'a str| match name.contains('/') {
            true => known,
            false => known.rsplit('/').next().unwrap_or(known),
        };
        hint_for_type(name, names.map(shown))
    }

    /// The full name of a field's type in `message`. Without a package it is the message's package,
    /// except for the names that ROS 1 knew without one.
    fn full_name(&self, message: &str, name: &str) -> String {
        if name.contains('/') {
            return plain_name(name);
        }
        let package = message.split('/').next().unwrap_or_default();
        let own = format!("{package}/{name}");
        let elsewhere = match name {
            "Header" => "std_msgs/Header",
            "time" => "builtin_interfaces/Time",
            "duration" => "builtin_interfaces/Duration",
            _ => return own,
        };
        if self.has(&own) {
            own
        } else {
            elsewhere.to_owned()
        }
    }
}

impl Definition {
    fn add(&mut self, line: &FieldLine, kind: Kind, comment: &str) -> Result<(), DefinitionError> {
        if self.fields.iter().any(|known| known.name == line.name) {
            let mut place = line.place.clone();
            place.column = line.name_column;
            return Err(DefinitionError::from(SyntaxError {
                place,
                found: line.name.clone(),
                expected: "another name: a field before has it".to_owned(),
                hint: None,
            }));
        }
        self.weight += 1 + weight_of(&kind);
        if self.weight > MAX_FIELDS {
            return Err(DefinitionError::TooLarge);
        }
        self.fields.push(Field {
            name: line.name.clone(),
            kind,
            default: line.default.clone().ok().flatten(),
            comment: comment.to_owned(),
            is_optional: false,
            enumeration: None,
            tensors: Vec::new(),
        });
        Ok(())
    }
}

fn not_known(
    field: &FieldLine,
    found: &str,
    expected: &str,
    hint: Option<String>,
) -> DefinitionError {
    let error = SyntaxError {
        place: field.place.clone(),
        found: shortened(found),
        expected: expected.to_owned(),
        hint,
    };
    error.into()
}

fn weight_of(kind: &Kind) -> usize {
    match kind {
        Kind::Message(definition) => definition.weight,
        Kind::Array(item, _) | Kind::Sequence(item, _) => 1 + weight_of(item),
        Kind::Bool | Kind::Number(_) | Kind::Text(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::Format;

    /// The type `name` of a schema.
    fn parse(name: &str, text: &[u8]) -> Result<Arc<Definition>, DefinitionError> {
        let sections = Sections::parse(name, text, Format::Message)?;
        Library::new(&[&sections, crate::humble::unchanged()]).definition(&plain_name(name))
    }

    const ODOMETRY: &str = "\
# An estimate
std_msgs/Header header
string child_frame_id
geometry_msgs/PoseWithCovariance pose
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp   # when
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
================================================================================
MSG: geometry_msgs/PoseWithCovariance
Pose pose
float64[36] covariance
================================================================================
MSG: geometry_msgs/Pose
Point position
================================================================================
MSG: geometry_msgs/Point
float64 x 0
float64 y -1.5
";

    #[test]
    fn nested_messages_are_found_in_their_own_package_too() {
        let definition = parse("nav_msgs/msg/Odometry", ODOMETRY.as_bytes()).unwrap();
        let kinds = [
            ("header", "std_msgs/Header"),
            ("child_frame_id", "string"),
            ("pose", "geometry_msgs/PoseWithCovariance"),
        ];
        assert!(definition.has_fields(&kinds), "{definition:?}");
        let Kind::Message(pose) = &definition.fields[2].kind else {
            panic!("{definition:?}")
        };
        assert!(pose.has_fields(&[
            ("pose", "geometry_msgs/Pose"),
            ("covariance", "float64[36]")
        ]));
    }

    #[test]
    fn constants_defaults_and_bounds_are_distinguished_from_fields() {
        let text = "uint8 OK=0\nuint8 BAD = 1\nstring NAME='a b'\nstring<=10 name \"a=b\"\nuint8[<=3] few\nint8[] any\nbool on true";
        let definition = parse("a/msg/B", text.as_bytes()).unwrap();
        let kinds = [
            ("name", "string<=10"),
            ("few", "uint8[<=3]"),
            ("any", "int8[]"),
            ("on", "bool"),
        ];
        assert!(definition.has_fields(&kinds), "{definition:?}");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            (
                "int32",
                "a/msg/B:1:6: found `the end of the line`, expected the name of a field after its type",
            ),
            (
                "\n  int32 a\nint32 a",
                "a/msg/B:3:7: found `a`, expected another name",
            ),
            (
                "int32[0] a",
                "a/msg/B:1:7: found `0`, expected a number of items from 1",
            ),
            ("int32[x] a", "a/msg/B:1:7: found `x`"),
            (
                "int32[99999999999999999999] a",
                "expected a number of items",
            ),
            (
                "int32 a;",
                "a/msg/B:1:8: found `;`, expected a name of letters, digits and `_` (remove it",
            ),
            (
                "a: int32",
                "a/msg/B:1:1: found `a:`, expected a type (write the type first, as in `float64 x`)",
            ),
            (
                "string<=x a",
                "a/msg/B:1:1: found `string<=x`, expected `string<=N`",
            ),
            (
                "wstring a",
                "a/msg/B:1:1: found `wstring`, expected `string`",
            ),
            (
                "other/Thing a",
                "a/msg/B:1:1: found `other/Thing`, expected a type with a definition",
            ),
            (
                "flaot64 a",
                "found `a/flaot64`, expected a type with a definition (did you mean `float64`?)",
            ),
            ("double a", "(did you mean `float64`?)"),
            ("std_msgs/Heder a", "(did you mean `std_msgs/Header`?)"),
            ("B again", "contains itself"),
        ] {
            let error = parse("a/msg/B", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(parse("a/B", b"\xff"), Err(DefinitionError::NotText));
    }

    #[test]
    fn a_definition_that_grows_exponentially_is_refused() {
        let mut text = String::from("M0 a\nM0 b\n");
        for level in 0..20 {
            text += &format!("===\nMSG: a/M{level}\n");
            text += &(0..10)
                .map(|field| format!("M{} f{field}\n", level + 1))
                .collect::<String>();
        }
        text += "===\nMSG: a/M20\nint8 x\n";
        assert_eq!(
            parse("a/B", text.as_bytes()),
            Err(DefinitionError::TooLarge)
        );
    }

    #[test]
    fn repeated_definitions_must_be_equal() {
        let part = |line: &str| format!("===\nMSG: a/Part\n{line}\n");
        let twice = |first: &str, second: &str| {
            let text = format!("Part[] one\nPart[] two\n{}{}", part(first), part(second));
            parse("a/msg/B", text.as_bytes())
        };
        let definition = twice("float64 v", "  int8 K=1\nfloat64   v # again").unwrap();
        assert!(definition.has_fields(&[("one", "a/Part[]"), ("two", "a/Part[]")]));
        let own = "float64 x\n===\nMSG: a/B\nfloat64 x";
        assert!(
            parse("a/msg/B", own.as_bytes())
                .unwrap()
                .has_fields(&[("x", "float64")])
        );
        let error = twice("float64 v", "float64 v\nint8 w")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "a/Part is defined twice, first with ``, then with `int8 w`"
        );
    }

    #[test]
    fn names_without_a_package_are_found_where_ros_finds_them() {
        let text = "Header header\ntime at\nduration[2] d\nbuiltin_interfaces/Time t";
        let definition = parse("a/msg/B", text.as_bytes()).unwrap();
        assert!(definition.has_fields(&[
            ("header", "std_msgs/Header"),
            ("at", "builtin_interfaces/Time"),
            ("d", "builtin_interfaces/Duration[2]"),
            ("t", "builtin_interfaces/Time"),
        ]));
        let own = "\u{feff}Header header\n===\nMSG: a/Header\nint8 x";
        let definition = parse("a/msg/B", own.as_bytes()).unwrap();
        assert!(
            definition.has_fields(&[("header", "a/Header")]),
            "{definition:?}"
        );
    }

    const FIBONACCI: &str = "int32 order\n---\nint32[] sequence\n---\nPoint at\n";
    const POINT: &str = "\n===\nMSG: a/Point\nfloat64 x\n";

    #[test]
    fn events_of_services_have_a_request_and_a_response() {
        let fields = [
            ("info", "service_msgs/ServiceEventInfo"),
            ("request", "a/srv/Add_Request[<=1]"),
            ("response", "a/srv/Add_Response[<=1]"),
        ];
        for text in [
            "int64 a\nint64 b\n---\nint64 sum\n",
            "===\nSRV: a/srv/Add\nint64 a\nint64 b\n---\nint64 sum\n",
            "---\n",
        ] {
            let event = parse("a/srv/Add_Event", text.as_bytes()).unwrap();
            assert!(event.has_fields(&fields), "{event:?}");
        }
        let error = parse("a/srv/Add_Event", b"int8 a\n---\n---\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a/srv/Add has 3 parts between lines of `---`, expected 2"
        );
    }

    #[test]
    fn messages_of_actions_are_those_that_ros_generates() {
        let id = ("goal_id", "unique_identifier_msgs/UUID");
        let info = ("info", "service_msgs/ServiceEventInfo");
        let of_action: [(&str, &[(&str, &str)]); 8] = [
            ("Feedback", &[("at", "a/Point")]),
            (
                "FeedbackMessage",
                &[id, ("feedback", "a/action/F_Feedback")],
            ),
            ("SendGoal_Request", &[id, ("goal", "a/action/F_Goal")]),
            (
                "SendGoal_Response",
                &[("accepted", "bool"), ("stamp", "builtin_interfaces/Time")],
            ),
            (
                "SendGoal_Event",
                &[
                    info,
                    ("request", "a/action/F_SendGoal_Request[<=1]"),
                    ("response", "a/action/F_SendGoal_Response[<=1]"),
                ],
            ),
            ("GetResult_Request", &[id]),
            (
                "GetResult_Response",
                &[("status", "int8"), ("result", "a/action/F_Result")],
            ),
            (
                "GetResult_Event",
                &[
                    info,
                    ("request", "a/action/F_GetResult_Request[<=1]"),
                    ("response", "a/action/F_GetResult_Response[<=1]"),
                ],
            ),
        ];
        for (name, fields) in of_action {
            let name = format!("a/action/F_{name}");
            for heading in ["", "===\nACTION: a/action/F\n"] {
                let text = format!("{heading}{FIBONACCI}{POINT}");
                let definition = parse(&name, text.as_bytes()).unwrap();
                assert!(definition.has_fields(fields), "{definition:?}");
            }
        }
        // With the status and the cancelling of an action `rosbag2` stores the action's text.
        let text = format!("===\nACTION: a/action/F\n{FIBONACCI}{POINT}");
        for name in [
            "action_msgs/msg/GoalStatusArray",
            "action_msgs/srv/CancelGoal_Event",
        ] {
            parse(name, text.as_bytes()).unwrap();
        }
    }

    #[test]
    fn services_in_files_are_known_by_their_parts() {
        let mut sections = Sections::default();
        let text = b"# Sum\nint64 a\n---\nint64 sum # of all\n";
        sections
            .add_file(Format::Service, "a/srv/Add", "a/srv/Add.srv", text)
            .unwrap();
        assert!(sections.has("a/srv/Add_Event") && !sections.has("a/srv/Sub_Event"));
    }
}
