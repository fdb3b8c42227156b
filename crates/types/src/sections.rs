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
use std::sync::Arc;

use crate::definition::plain_name;
use crate::error::{DefinitionError, MAX_TEXT_BYTES, SyntaxError, shortened};
use crate::idl;
use crate::line::{Line, comment_of, without_comment};
use crate::sidecar::Sidecar;

/// Line between the parts of a service or an action.
const PART_LINE: &str = "---";

/// The lines of each type, by the name of the type (`package/Name`, `package/srv/Name_Request`).
#[derive(Clone, Debug, Default)]
pub struct Sections(HashMap<String, Section>);

/// The lines of a type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// The comment at its beginning.
    pub(crate) comment: String,
    pub(crate) lines: Vec<Line>,
    pub(crate) sidecar: Sidecar,
}

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
        for (at, line) in text.lines().enumerate() {
            let bare = without_comment(line);
            if let Some(next) = heading_of(bare) {
                sections.add_part(root, format, heading, &body)?;
                heading = Some(next);
                body.clear();
            } else if !bare.starts_with("===") {
                body.push((at + 1, line));
            }
        }
        if heading.is_none() && is_blank(&body) {
            sections.insert(plain_name(root), Section::default())?;
        }
        sections.add_part(root, format, heading, &body)?;
        Ok(sections)
    }

    /// Adds the text of the file `source` with the definition `name`.
    ///
    /// # Errors
    /// [`DefinitionError`]. A line that is no field is an error when the type is resolved.
    pub fn add_file(
        &mut self,
        format: Format,
        name: &str,
        source: &str,
        text: &[u8],
    ) -> Result<(), DefinitionError> {
        let body: Vec<NumberedLine<'_>> = numbered(decode(text)?).collect();
        self.add(format, name, &source.into(), &body)
    }

    /// Adds facts about the type `name` that its definition cannot say: the text of a file in TOML.
    ///
    /// # Errors
    /// If the text is no such file, or the type is not here or has none of the fields.
    pub fn add_sidecar(
        &mut self,
        name: &str,
        source: &str,
        text: &str,
    ) -> Result<(), DefinitionError> {
        let section = self.section_mut(name)?;
        section.sidecar = Sidecar::parse(source, text, &section.lines)?;
        Ok(())
    }

    /// Adds facts about the type `name`.
    pub(crate) fn set_sidecar(
        &mut self,
        name: &str,
        sidecar: Sidecar,
    ) -> Result<(), DefinitionError> {
        self.section_mut(name)?.sidecar = sidecar;
        Ok(())
    }

    fn section_mut(&mut self, name: &str) -> Result<&mut Section, DefinitionError> {
        self.0
            .get_mut(name)
            .ok_or_else(|| DefinitionError::Unknown {
                name: shortened(name),
                hint: None,
            })
    }

    /// The names of the types, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// The lines of a type that are neither fields nor constants.
    pub fn errors(&self, name: &str) -> impl Iterator<Item = &SyntaxError> {
        let lines = self
            .0
            .get(name)
            .into_iter()
            .flat_map(|section| &section.lines);
        lines.filter_map(Line::error)
    }

    /// Whether the type is known.
    pub fn has(&self, name: &str) -> bool {
        self.section(name).is_some()
    }

    /// The types whose names satisfy `is_kept`.
    pub fn only(&self, is_kept: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, _)| is_kept(name));
        Self(
            kept.map(|(name, section)| (name.clone(), section.clone()))
                .collect(),
        )
    }

    /// The lines of a type.
    pub(crate) fn section(&self, name: &str) -> Option<Cow<'_, Section>> {
        match self.0.get(name) {
            Some(section) => Some(Cow::Borrowed(section)),
            None => {
                let lines = self.generated(name)?;
                let body: Vec<NumberedLine<'_>> = numbered(&lines).collect();
                Some(Cow::Owned(Section::read(&name.into(), &body)))
            }
        }
    }

    /// The fields of a type that ROS generates from a service or an action, as lines.
    fn generated(&self, name: &str) -> Option<String> {
        const GOAL_ID: &str = "unique_identifier_msgs/UUID goal_id";
        let if_known = |parts: &[String], lines: &[&str]| {
            let is_known = parts.iter().all(|part| self.has(part));
            is_known.then(|| lines.join("\n"))
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
        body: &[NumberedLine<'_>],
    ) -> Result<(), DefinitionError> {
        let source: Arc<str> = root.into();
        if let Some((format, name)) = heading {
            return self.add(format, name, &source, body);
        }
        if is_blank(body) {
            return Ok(());
        }
        let (format, name) = match body.iter().any(is_part_line) {
            _ if format == Format::Idl => (format, root),
            false => (Format::Message, root),
            true if is_of_action(root) => (Format::Action, interface_of(root)),
            true => (Format::Service, interface_of(root)),
        };
        self.add(format, name, &source, body)
    }

    fn add(
        &mut self,
        format: Format,
        name: &str,
        source: &Arc<str>,
        body: &[NumberedLine<'_>],
    ) -> Result<(), DefinitionError> {
        let parts: &[&str] = match format {
            Format::Message => return self.insert(plain_name(name), Section::read(source, body)),
            Format::Idl => {
                let text: Vec<&str> = body.iter().map(|(_, line)| *line).collect();
                return idl::structs(&text.join("\n"))?.into_iter().try_for_each(
                    |(name, lines)| {
                        let lines = lines.join("\n");
                        let body: Vec<NumberedLine<'_>> = numbered(&lines).collect();
                        let section = Section::read(&name.as_str().into(), &body);
                        self.insert(name, section)
                    },
                );
            }
            Format::Service => &["Request", "Response"],
            Format::Action => &["Goal", "Result", "Feedback"],
        };
        let found: Vec<&[NumberedLine<'_>]> = body.split(is_part_line).collect();
        if found.len() != parts.len() {
            return Err(DefinitionError::Parts {
                name: shortened(name),
                found: found.len(),
                expected: parts.len(),
            });
        }
        for (part, lines) in parts.iter().zip(found) {
            self.insert(format!("{name}_{part}"), Section::read(source, lines))?;
        }
        Ok(())
    }

    /// Adds a type. A repetition with equal fields is no conflict.
    fn insert(&mut self, name: String, section: Section) -> Result<(), DefinitionError> {
        let known = match self.0.entry(name) {
            Entry::Vacant(place) => {
                place.insert(section);
                return Ok(());
            }
            Entry::Occupied(known) => known,
        };
        let (first, second) = (known.get().signatures(), section.signatures());
        let line = |lines: &[String], at: usize| {
            let line = lines.get(at).map(String::as_str);
            shortened(line.unwrap_or_default())
        };
        let longest = first.len().max(second.len());
        match (0..longest).find(|&at| first.get(at) != second.get(at)) {
            None => Ok(()),
            Some(at) => Err(DefinitionError::Conflict {
                name: known.key().clone(),
                first: line(&first, at),
                second: line(&second, at),
            }),
        }
    }
}

impl Section {
    /// Reads the lines of a file or a part of one. A first block of comments, before an empty line or
    /// a field, describes the type.
    fn read(source: &Arc<str>, body: &[NumberedLine<'_>]) -> Self {
        let mut section = Self::default();
        let (mut above, mut is_first) = (Vec::new(), true);
        for &(number, text) in body {
            let comment = comment_of(text).filter(|_| without_comment(text).is_empty());
            if let Some(comment) = comment {
                above.push(comment);
                continue;
            }
            let block = std::mem::take(&mut above).join("\n");
            let is_of_type = is_first;
            is_first &= block.is_empty() && text.trim().is_empty();
            if is_of_type && !block.is_empty() {
                section.comment = block.trim().to_owned();
                section.lines.extend(Line::read(source, number, text, ""));
            } else {
                section
                    .lines
                    .extend(Line::read(source, number, text, block.trim()));
            }
        }
        section
    }

    /// The fields without their comments and defaults.
    fn signatures(&self) -> Vec<String> {
        self.lines.iter().filter_map(Line::signature).collect()
    }
}

/// A line and its number in its file.
type NumberedLine<'a> = (usize, &'a str);

fn numbered(text: &str) -> impl Iterator<Item = NumberedLine<'_>> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

fn is_part_line((_, line): &NumberedLine<'_>) -> bool {
    without_comment(line) == PART_LINE
}

fn decode(text: &[u8]) -> Result<&str, DefinitionError> {
    const BYTE_ORDER_MARK: char = '\u{feff}';
    if text.len() > MAX_TEXT_BYTES {
        return Err(DefinitionError::TooLarge);
    }
    let text = std::str::from_utf8(text).map_err(|_| DefinitionError::NotText)?;
    Ok(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text))
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

fn is_blank(body: &[NumberedLine<'_>]) -> bool {
    body.iter()
        .all(|(_, line)| without_comment(line).is_empty())
}
