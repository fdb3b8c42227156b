//! A `.msg` file and the file in TOML beside it. Any text is a definition or refused with a position
//! in it. A definition has a schema within the limits, or none.
//!
//! Seeds: the definition, a line of `===`, the file beside it.

use nervure_message::Layout;
use nervure_types::{
    Definition, DefinitionError, Format, Library, SampleCheck, Sections, compare, humble,
};

const NAME: &str = "a/B";
const BETWEEN: &[u8] = b"\n===\n";

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let at = bytes
        .windows(BETWEEN.len())
        .position(|part| part == BETWEEN);
    let (text, sidecar) = match at {
        Some(at) => (&bytes[..at], &bytes[at + BETWEEN.len()..]),
        None => (bytes, &b""[..]),
    };
    let mut sections = Sections::default();
    if let Err(error) = sections.add_file(Format::Message, NAME, "B.msg", text) {
        return assert_position(&error, text);
    }
    for error in sections.errors(NAME) {
        assert_position(&error.clone().into(), text);
    }
    if let Ok(text) = str::from_utf8(sidecar)
        && let Err(error) = sections.add_sidecar(NAME, "B.toml", text)
    {
        assert_position(&error, sidecar);
    }
    let sources = [&sections, humble()];
    let definition = match Library::new(&sources).definition(NAME) {
        Ok(definition) => definition,
        Err(error) => return assert_position(&error, text),
    };
    assert_eq!(compare(&definition, &definition), []);
    let portable = definition.to_portable();
    let passed = Definition::from_portable(&portable).expect("a definition passes as JSON");
    assert_eq!(passed.to_portable(), portable);
    let default = |definition: &Definition| -> Vec<String> {
        let fields = definition.fields.iter();
        fields.map(|field| format!("{:?}", field.default)).collect()
    };
    assert_eq!(default(&passed), default(&definition));
    let _ = definition.schema();
    let _ = SampleCheck::new("a/B@1", definition).check(&Layout::Text, None);
}

fn assert_position(error: &DefinitionError, text: &[u8]) {
    assert!(!error.to_string().is_empty());
    if let DefinitionError::Syntax(error) = error {
        let lines = text.split(|&byte| byte == b'\n').count();
        assert!((1..=lines).contains(&error.place.line), "{error}");
        assert!(error.place.column >= 1, "{error}");
    }
}
