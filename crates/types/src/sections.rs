//! Texts of message definitions, as they stand in the schema of a channel (`ros2msg`): the text of
//! the message's own file, then the texts of all messages it uses, each after a line of `=` and a
//! line with its name.
//!
//! Writers differ: some repeat a text for each use, and some begin with the name of the message. For
//! the events of services and the messages of actions, `rosbag2` stores the text of the `.srv` or
//! `.action` file, from which ROS generates these types. Of types that are defined in IDL it stores
//! the `.idl` files (`ros2idl`), each after such a heading.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::definition::{DefinitionError, MAX_TEXT_BYTES, plain_name, shortened};
use crate::idl;

/// Line between the parts of a service or an action.
const PART_LINE: &str = "---";

/// The fields of each type as lines (`type name`), by the name of the type (`package/Name`,
/// `package/srv/Name_Request`).
#[derive(Clone, Debug, Default)]
pub struct Sections(HashMap<String, Vec<String>>);

/// The kind of file that a definition is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.msg`
    Message,
    /// `.srv`
    Service,
    /// `.action`
    Action,
    /// `.idl`
    Idl,
}

impl Sections {
    /// Splits the schema of a channel with messages of type `root`. `format` is the format of the text
    /// before the first heading.
    ///
    /// # Errors
    /// [`DefinitionError`].
    pub fn parse(root: &str, text: &[u8], format: Format) -> Result<Self, DefinitionError> {
        let text = decode(text)?;
        let mut sections = Self::default();
        let mut heading: Option<(Format, &str)> = None;
        let mut body = Vec::new();
        for line in text.lines() {
            let bare = without_comment(line);
            if let Some(next) = heading_of(bare) {
                sections.add_part(root, format, heading, &body)?;
                heading = Some(next);
                body.clear();
            } else if !bare.starts_with("===") {
                body.push(line);
            }
        }
        if heading.is_none() && is_blank(&body) {
            sections.insert(plain_name(root), Vec::new())?;
        }
        sections.add_part(root, format, heading, &body)?;
        Ok(sections)
    }

    /// Adds the text of a file with the definition `name`.
    ///
    /// # Errors
    /// [`DefinitionError`].
    pub fn add_file(
        &mut self,
        format: Format,
        name: &str,
        text: &[u8],
    ) -> Result<(), DefinitionError> {
        let body: Vec<&str> = decode(text)?.lines().collect();
        self.add(format, name, &body)
    }

    /// Whether the type is known.
    pub fn has(&self, name: &str) -> bool {
        self.lines(name).is_some()
    }

    /// The types whose names satisfy `is_kept`.
    pub fn only(&self, is_kept: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, _)| is_kept(name));
        Self(
            kept.map(|(name, lines)| (name.clone(), lines.clone()))
                .collect(),
        )
    }

    /// The fields of a type.
    pub(crate) fn lines(&self, name: &str) -> Option<Cow<'_, [String]>> {
        match self.0.get(name) {
            Some(lines) => Some(Cow::Borrowed(lines)),
            None => self.generated(name).map(Cow::Owned),
        }
    }

    /// The fields of a type that ROS generates from a service or an action.
    fn generated(&self, name: &str) -> Option<Vec<String>> {
        const GOAL_ID: &str = "unique_identifier_msgs/UUID goal_id";
        let if_known = |parts: &[String], lines: &[&str]| {
            let is_known = parts.iter().all(|part| self.has(part));
            is_known.then(|| lines.iter().map(|&line| line.to_owned()).collect())
        };
        if let Some(base) = name.strip_suffix("_Event") {
            let parts = ["Request", "Response"].map(|part| format!("{base}_{part}"));
            let fields = [
                "service_msgs/ServiceEventInfo info",
                &format!("{}[<=1] request", parts[0]),
                &format!("{}[<=1] response", parts[1]),
            ];
            return if_known(&parts, &fields);
        }
        if let Some(base) = name.strip_suffix("_FeedbackMessage") {
            let part = format!("{base}_Feedback");
            return if_known(
                std::slice::from_ref(&part),
                &[GOAL_ID, &format!("{part} feedback")],
            );
        }
        let (base, is_request) = match name.strip_suffix("_Request") {
            Some(base) => (base, true),
            None => (name.strip_suffix("_Response")?, false),
        };
        if let Some(base) = base.strip_suffix("_SendGoal") {
            let part = format!("{base}_Goal");
            let goal = format!("{part} goal");
            let fields = match is_request {
                true => [GOAL_ID, &goal],
                false => ["bool accepted", "builtin_interfaces/Time stamp"],
            };
            return if_known(std::slice::from_ref(&part), &fields);
        }
        let part = format!("{}_Result", base.strip_suffix("_GetResult")?);
        let result = format!("{part} result");
        let fields: &[&str] = match is_request {
            true => &[GOAL_ID],
            false => &["int8 status", &result],
        };
        if_known(std::slice::from_ref(&part), fields)
    }

    /// Adds the definition under a heading; before the first heading, that of `root`.
    fn add_part(
        &mut self,
        root: &str,
        format: Format,
        heading: Option<(Format, &str)>,
        body: &[&str],
    ) -> Result<(), DefinitionError> {
        if let Some((format, name)) = heading {
            return self.add(format, name, body);
        }
        if is_blank(body) {
            return Ok(());
        }
        let has_parts = body.iter().any(|line| without_comment(line) == PART_LINE);
        match has_parts {
            _ if format == Format::Idl => self.add(format, root, body),
            false => self.add(Format::Message, root, body),
            true if is_of_action(root) => self.add(Format::Action, interface_of(root), body),
            true => self.add(Format::Service, interface_of(root), body),
        }
    }

    fn add(&mut self, format: Format, name: &str, body: &[&str]) -> Result<(), DefinitionError> {
        let parts: &[&str] = match format {
            Format::Message => return self.insert(plain_name(name), fields(body)),
            Format::Idl => {
                let structs = idl::structs(&body.join("\n"))?;
                return structs
                    .into_iter()
                    .try_for_each(|(name, lines)| self.insert(name, lines));
            }
            Format::Service => &["Request", "Response"],
            Format::Action => &["Goal", "Result", "Feedback"],
        };
        let found: Vec<&[&str]> = body
            .split(|line| without_comment(line) == PART_LINE)
            .collect();
        if found.len() != parts.len() {
            return Err(DefinitionError::Parts {
                name: shortened(name),
                found: found.len(),
                expected: parts.len(),
            });
        }
        for (part, lines) in parts.iter().zip(found) {
            self.insert(format!("{name}_{part}"), fields(lines))?;
        }
        Ok(())
    }

    /// Adds a type. An equal repetition is no conflict.
    fn insert(&mut self, name: String, lines: Vec<String>) -> Result<(), DefinitionError> {
        match self.0.entry(name) {
            Entry::Vacant(place) => {
                place.insert(lines);
            }
            Entry::Occupied(known) if *known.get() != lines => {
                let line = |lines: &[String], at| lines.get(at).cloned().unwrap_or_default();
                let differs = |at: &usize| line(known.get(), *at) != line(&lines, *at);
                let at = (0..).find(differs).expect("the lines differ");
                return Err(DefinitionError::Conflict {
                    name: known.key().clone(),
                    first: shortened(&line(known.get(), at)),
                    second: shortened(&line(&lines, at)),
                });
            }
            Entry::Occupied(_) => {}
        }
        Ok(())
    }
}

fn decode(text: &[u8]) -> Result<&str, DefinitionError> {
    const BYTE_ORDER_MARK: char = '\u{feff}';
    if text.len() > MAX_TEXT_BYTES {
        return Err(DefinitionError::TooLarge);
    }
    let text = std::str::from_utf8(text).map_err(|_| DefinitionError::NotText)?;
    Ok(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text))
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

fn heading_of(line: &str) -> Option<(Format, &str)> {
    const MARKS: [(&str, Format); 4] = [
        ("MSG:", Format::Message),
        ("SRV:", Format::Service),
        ("ACTION:", Format::Action),
        ("IDL:", Format::Idl),
    ];
    MARKS
        .into_iter()
        .find_map(|(mark, format)| Some((format, line.strip_prefix(mark)?.trim())))
}

fn is_of_action(name: &str) -> bool {
    name.contains("/action/")
}

/// The name of the service or action from which the type `name` is generated.
pub fn interface_of(name: &str) -> &str {
    const OF_SERVICE: [&str; 3] = ["_Request", "_Response", "_Event"];
    const OF_ACTION: [&str; 6] = [
        "_SendGoal",
        "_GetResult",
        "_FeedbackMessage",
        "_Goal",
        "_Result",
        "_Feedback",
    ];
    let strip = |name, ends: &[&str]| {
        let mut found = ends.iter().filter_map(|end| str::strip_suffix(name, end));
        found.next().unwrap_or(name)
    };
    let of_service = strip(name, &OF_SERVICE);
    match is_of_action(name) {
        true => strip(of_service, &OF_ACTION),
        false => of_service,
    }
}

fn is_blank(body: &[&str]) -> bool {
    body.iter().all(|line| without_comment(line).is_empty())
}

fn fields(body: &[&str]) -> Vec<String> {
    let lines = body.iter().map(|line| without_comment(line));
    lines
        .filter(|line| !line.is_empty())
        .filter_map(field_line)
        .collect()
}

/// A line in the form `type name`, without its default value; `None` for a constant. A line that is
/// no field stays as it is, for the error.
fn field_line(line: &str) -> Option<String> {
    let (kind, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    if after.trim_start().starts_with('=') {
        return None;
    }
    let is_field = !name.is_empty() && (after.is_empty() || after.starts_with(char::is_whitespace));
    Some(match is_field {
        true => format!("{} {name}", plain_name(kind)),
        false => line.to_owned(),
    })
}
