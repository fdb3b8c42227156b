//! From the texts of definitions to types: names are looked up in several sources, in order.

use std::collections::HashMap;
use std::sync::Arc;

use crate::definition::{
    Definition, DefinitionError, Field, Kind, MAX_DEPTH, MAX_FIELDS, Number, plain_name, shortened,
};
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
        let lines = self.sources.iter().find_map(|source| source.lines(name));
        let lines = lines.ok_or_else(|| DefinitionError::Unknown {
            name: shortened(name),
        })?;
        let mut fields: Vec<Field> = Vec::new();
        let mut weight = 0_usize;
        for line in lines.iter() {
            let no_field = || DefinitionError::Line {
                message: name.to_owned(),
                line: shortened(line),
            };
            let (kind, field) = line.split_once(' ').ok_or_else(no_field)?;
            let is_name = field.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name || fields.iter().any(|known| known.name == field) {
                return Err(no_field());
            }
            let kind = self.kind(name, kind, depth)?.ok_or_else(no_field)?;
            weight += 1 + weight_of(&kind);
            if weight > MAX_FIELDS {
                return Err(DefinitionError::TooLarge);
            }
            fields.push(Field {
                name: field.to_owned(),
                kind,
            });
        }
        let definition = Arc::new(Definition {
            name: name.to_owned(),
            fields,
            weight,
        });
        self.known.insert(name.to_owned(), definition.clone());
        Ok(definition)
    }

    /// The type of a field of `message`; `None` if the text is no type.
    fn kind(
        &mut self,
        message: &str,
        text: &str,
        depth: usize,
    ) -> Result<Option<Kind>, DefinitionError> {
        const MAX_DIMENSIONS: usize = 8;
        let last = text
            .strip_suffix(']')
            .and_then(|text| text.rsplit_once('['));
        let Some((item, count)) = last else {
            return self.plain_kind(message, text, depth).map(Some);
        };
        if item.matches('[').count() >= MAX_DIMENSIONS {
            return Ok(None);
        }
        let Some(item) = self.kind(message, item, depth)?.map(Box::new) else {
            return Ok(None);
        };
        let (is_bound, digits) = match count.strip_prefix("<=") {
            Some(digits) => (true, digits),
            None => (false, count),
        };
        Ok(match digits.parse::<usize>() {
            Ok(1..) if is_bound => Some(Kind::Sequence(item)),
            Ok(count @ 1..) => Some(Kind::Array(item, count)),
            Err(_) if count.is_empty() => Some(Kind::Sequence(item)),
            _ => None,
        })
    }

    fn plain_kind(
        &mut self,
        message: &str,
        text: &str,
        depth: usize,
    ) -> Result<Kind, DefinitionError> {
        // A string may have a length limit, which does not matter here.
        let bare = text.split("<=").next().unwrap_or(text);
        Ok(match bare {
            "bool" => Kind::Bool,
            "int8" => Kind::Number(Number::I8),
            "uint8" | "byte" | "char" => Kind::Number(Number::U8),
            "int16" => Kind::Number(Number::I16),
            "uint16" => Kind::Number(Number::U16),
            "int32" => Kind::Number(Number::I32),
            "uint32" => Kind::Number(Number::U32),
            "int64" => Kind::Number(Number::I64),
            "uint64" => Kind::Number(Number::U64),
            "float32" => Kind::Number(Number::F32),
            "float64" => Kind::Number(Number::F64),
            "string" => Kind::Text,
            "wstring" => {
                return Err(DefinitionError::WideText {
                    message: message.to_owned(),
                });
            }
            name => {
                let name = self.full_name(message, name);
                if !self.has(&name) {
                    return Err(DefinitionError::Missing {
                        message: message.to_owned(),
                        name: shortened(&name),
                    });
                }
                Kind::Message(self.resolve(&name, depth - 1)?)
            }
        })
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

fn weight_of(kind: &Kind) -> usize {
    match kind {
        Kind::Message(definition) => definition.weight,
        Kind::Array(item, _) | Kind::Sequence(item) => 1 + weight_of(item),
        Kind::Bool | Kind::Number(_) | Kind::Text => 0,
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
            ("name", "string"),
            ("few", "uint8[]"),
            ("any", "int8[]"),
            ("on", "bool"),
        ];
        assert!(definition.has_fields(&kinds), "{definition:?}");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("int32", "`int32` in the definition of a/B is not a field"),
            ("int32 a\nint32 a", "`int32 a`"),
            ("int32[0] a", "`int32[0] a`"),
            ("int32[x] a", "`int32[x] a`"),
            ("int32[99999999999999999999] a", "is not a field"),
            ("wstring a", "wstring"),
            (
                "other/Thing a",
                "`other/Thing`, whose definition is missing",
            ),
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
            ("request", "a/srv/Add_Request[]"),
            ("response", "a/srv/Add_Response[]"),
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
                    ("request", "a/action/F_SendGoal_Request[]"),
                    ("response", "a/action/F_SendGoal_Response[]"),
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
                    ("request", "a/action/F_GetResult_Request[]"),
                    ("response", "a/action/F_GetResult_Response[]"),
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
            .add_file(Format::Service, "a/srv/Add", text)
            .unwrap();
        assert!(sections.has("a/srv/Add_Event") && !sections.has("a/srv/Sub_Event"));
    }
}
