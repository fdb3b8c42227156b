//! Keeps the reference page of the standard types up to date.
//!
//! `UPDATE_REFERENCE=1 cargo test -p nervure-types` updates it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use nervure_types::{Definition, Field, Kind, standard_names, standard_type};

const HEAD: &str = "\
# Standard types

An output may declare one of these types: `outputs: {imu: {type: std/Imu@1}}`. Each of its samples is then checked where
it is sent, in every language. A sample that does not fit is refused with an error:

```
the output `imu` sends std/Imu@1, field `angular_velocity.x`: expected `float64`, found text
```

Another name of the namespace `std` with a version, such as `std/Imuu@1`, is an error of the dataflow file.
Types without a version (`std/Imu`), and types of namespaces that no folder of `types` defines, are names: their samples are
not checked.
Nor are samples from another machine, which were checked there. `nervure types show std/Imu@1` prints a definition in the terminal.

Types of your own are files beside the dataflow file. With `types: [msgs]`, the file `msgs/my/Pose.msg` (or
`msgs/my/msg/Pose.msg`, as in packages of ROS) defines `my/Pose@1`, in the syntax of ROS; it may use `std/` types and messages
of ROS 2. The optional `Pose.toml` beside it says more:

```toml
version = 2                      # my/Pose@2; 1 without it
payload = \"data\"                 # the field that is the whole sample
[fields.note]
optional = true
[fields.covariance]
tensors = [{ shapes = [[6, 6]] }]
```

Their samples are checked as those of standard types. Errors name the file, line and column of the definition. `nervure types
list msgs` and `nervure types show msgs/my/Pose.msg` print them. A module may have its own `types`; an edge between two different
definitions of one type is an error with both side by side, before the first sample. An added optional field is none.

The check costs 20 ns for an image, 40 ns for a twist and 110 ns for odometry, and 1.5 to 5 us for the first sample of a layout
(medians of `cargo run --release -p nervure-types --example check_cost` on an AMD EPYC, 2 cores, busy).

A sample is a dict, a dataclass or a struct with the fields of its type, in any order, unless the type says otherwise. Stamp
and frame are in the header of every sample, so types do not repeat them. The names of fields are those of ROS.

`nervure.types` has a dataclass of each type for Python, `nervure_node::types` (with the feature `types`) a struct for Rust, and
`nervure_types.hpp` one for C++. [Types of messages](../guides/types.md) uses them, and makes others from `.msg` files.

- A field with `?` may be absent or null; every other one must be there. Other fields than these are refused.
- `float32` and `float64` take all numbers, integer types all integers: a record has 64 bits for each number. Values are not
  checked, so an integer may be too large for its field.
- A list of numbers may be a NumPy array of one dimension with exactly their type, or one of the tensors below the table.
- `[9]` is a list of 9 items, `[]` one of any length. Arrow's type for both is `LargeList`: records have no lists of fixed size.
- A field of type `uint8[]` may be bytes.

\"ROS 2\" names the message with the same content.

This page is generated from `crates/types/std`; `UPDATE_REFERENCE=1 cargo test -p nervure-types` writes it.

";

#[test]
fn the_reference_page_is_up_to_date() {
    let mut page = HEAD.to_owned();
    write_shown(&mut page);
    for name in standard_names() {
        let definition = standard_type(&name).unwrap();
        write_type(&mut page, &name.to_string(), &definition);
    }
    let page = format!("{}\n", page.trim_end());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/types.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/reference/types.md differs from the definitions: run UPDATE_REFERENCE=1 cargo test -p nervure-types"
    );
}

/// The table of the messages in recordings.
fn write_shown(page: &mut String) {
    page.push_str(SHOWN);
    for name in standard_names() {
        let definition = standard_type(&name).unwrap();
        let facts = &definition.facts;
        let message = match &facts.foxglove {
            Some(message) => message.clone(),
            None => format!("{}.{}", name.namespace(), name.name()),
        };
        let link = linked(&definition.name, "");
        let sources = facts.foxglove_fields.iter();
        let sources = sources.map(|(field, source)| format!("`{field}`: {source}"));
        let sources = match (&facts.payload, &facts.foxglove) {
            (Some(_), _) => "the payload".to_owned(),
            (None, None) => "its own fields".to_owned(),
            (None, Some(_)) => sources.collect::<Vec<_>>().join(", "),
        };
        writeln!(page, "| {link} | `{message}` | {sources} |").unwrap();
    }
    page.push('\n');
}

const SHOWN: &str = "\
## In recordings

A recorded sample of a type is the message of Foxglove named here, filled from these fields of the sample: Foxglove draws it, and
plots its numbers. Other types, for which Foxglove has no message, are messages with their own fields, whose numbers can be plotted.
The whole sample is in the [recording](recording.md) too.

| type | message | fields |
|---|---|---|
";

fn write_type(page: &mut String, name: &str, definition: &Definition) {
    let comment = definition.comment.replace('\n', " ");
    write!(page, "## {name}\n\n{comment}").unwrap();
    let facts = &definition.facts;
    if let Some(message) = &facts.ros {
        write!(page, " ROS 2: `{message}`.").unwrap();
    }
    page.push_str("\n\n| field | type | unit | |\n|---|---|---|---|\n");
    for field in &definition.fields {
        write_field(page, definition, field);
    }
    page.push('\n');
    for field in &definition.fields {
        for rule in &field.tensors {
            writeln!(page, "`{}` as a tensor: {rule}.\n", field.name).unwrap();
        }
    }
    if !definition.constants.is_empty() {
        let constants = definition.constants.iter();
        let shown = constants.map(|constant| format!("`{}` {}", constant.name, constant.value));
        writeln!(
            page,
            "Constants: {}.\n",
            shown.collect::<Vec<_>>().join(", ")
        )
        .unwrap();
    }
}

fn write_field(page: &mut String, definition: &Definition, field: &Field) {
    let kind = match &field.kind {
        Kind::Message(message) => linked(&message.name, ""),
        Kind::Sequence(item, None) => match &**item {
            Kind::Message(message) => linked(&message.name, "[]"),
            item => format!("`{item}[]`"),
        },
        kind => format!("`{kind}`"),
    };
    let mark = if field.is_optional { "?" } else { "" };
    let mut sentences = vec![field.description().replace('\n', " ")];
    if let Some(prefix) = &field.enumeration {
        sentences.push(format!("One of `{prefix}..`"));
    }
    if let Some(default) = &field.default {
        sentences.push(format!("{default} by default"));
    }
    match definition.payload() {
        Some(payload) if payload.name == field.name => sentences.push("The payload".to_owned()),
        Some(_) => sentences.push("In the metadata".to_owned()),
        None => {}
    }
    sentences.retain(|sentence| !sentence.is_empty());
    let unit = field.unit().unwrap_or_default();
    let text = sentences.join(". ");
    writeln!(
        page,
        "| `{}`{mark} | {kind} | {unit} | {text} |",
        field.name
    )
    .unwrap();
}

/// A link to the section of a type.
fn linked(name: &str, list: &str) -> String {
    format!(
        "[`{name}{list}`](#{}1)",
        name.replace('/', "").to_lowercase()
    )
}
