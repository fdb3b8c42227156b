//! Definitions in IDL (`ros2idl`, `omgidl`), as `rosidl` makes them of messages. A struct is
//! translated to the lines of a `.msg` file that has the same CDR.

use std::collections::{HashMap, HashSet};

use crate::definition::plain_name;
use crate::error::{DefinitionError, shortened};

/// Limit on modules and sequences in each other.
const MAX_DEPTH: usize = 16;

/// The structs of a file, as names and lines.
pub(crate) fn structs(text: &str) -> Result<Vec<(String, Vec<String>)>, DefinitionError> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
        aliases: HashMap::new(),
        known: HashSet::new(),
        structs: Vec::new(),
    };
    parser.items(&mut Vec::new())?;
    match parser.peek() {
        None => Ok(parser.structs),
        Some(_) => Err(parser.unexpected("the end")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Token<'a> {
    line: usize,
    /// A name with its scope, a number, a quoted text, or one other character.
    text: &'a str,
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Types of `.msg` files, by the names that stand for them.
    aliases: HashMap<String, String>,
    /// Names of structs.
    known: HashSet<String>,
    structs: Vec<(String, Vec<String>)>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        Some(self.tokens.get(self.at)?.text)
    }

    fn unexpected(&self, expected: &str) -> DefinitionError {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        DefinitionError::Idl {
            line: token.map_or(1, |token| token.line),
            found: self.peek().map_or_else(|| "the end".to_owned(), shortened),
            expected: expected.to_owned(),
        }
    }

    /// Takes the next token if it is `text`.
    fn takes(&mut self, text: &str) -> bool {
        let is_next = self.peek() == Some(text);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, text: &str) -> Result<(), DefinitionError> {
        match self.takes(text) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{text}`"))),
        }
    }

    fn name(&mut self) -> Result<&'a str, DefinitionError> {
        let is_name = |text: &&str| text.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let name = self.peek().filter(is_name);
        let name = name.ok_or_else(|| self.unexpected("a name"))?;
        self.at += 1;
        Ok(name)
    }

    /// A positive number.
    fn number(&mut self) -> Result<usize, DefinitionError> {
        let number = self.peek().and_then(|text| text.parse().ok());
        let number = number.filter(|number| *number > 0);
        let number = number.ok_or_else(|| self.unexpected("a positive number"))?;
        self.at += 1;
        Ok(number)
    }

    fn items(&mut self, scope: &mut Vec<&'a str>) -> Result<(), DefinitionError> {
        while self.peek().is_some_and(|text| text != "}") {
            self.annotations()?;
            let keyword = self.peek().unwrap_or_default();
            match keyword {
                "module" if scope.len() < MAX_DEPTH => {
                    self.at += 1;
                    scope.push(self.name()?);
                    self.expect("{")?;
                    self.items(scope)?;
                    self.expect("}")?;
                    scope.pop();
                    self.takes(";");
                }
                "struct" => self.structure(scope)?,
                "typedef" => {
                    self.at += 1;
                    let kind = self.kind(scope, MAX_DEPTH)?;
                    for (name, kind) in self.declared(&kind)? {
                        self.aliases.insert(joined(scope, name), kind);
                    }
                }
                // An enumerator takes as many bytes as this.
                "enum" => {
                    self.at += 1;
                    let name = joined(scope, self.name()?);
                    self.aliases.insert(name, "uint32".to_owned());
                    self.skip_past(";");
                }
                "const" => self.skip_past(";"),
                ";" => self.at += 1,
                _ => {
                    return Err(self.unexpected("`module`, `struct`, `typedef`, `enum` or `const`"));
                }
            }
        }
        Ok(())
    }

    fn skip_past(&mut self, end: &str) {
        while self.peek().is_some() && !self.takes(end) {
            self.at += 1;
        }
    }

    fn annotations(&mut self) -> Result<(), DefinitionError> {
        while self.takes("@") {
            if self.peek() == Some("optional") {
                return Err(self.unexpected("no `@optional`, which changes the encoding"));
            }
            self.name()?;
            if !self.takes("(") {
                continue;
            }
            let mut open = 1;
            while open > 0 {
                match self.peek() {
                    Some("(") => open += 1,
                    Some(")") => open -= 1,
                    Some(_) => {}
                    None => return Err(self.unexpected("`)`")),
                }
                self.at += 1;
            }
        }
        Ok(())
    }

    fn structure(&mut self, scope: &[&'a str]) -> Result<(), DefinitionError> {
        self.at += 1;
        let name = joined(scope, self.name()?);
        if self.takes(";") {
            return Ok(());
        }
        self.expect("{")?;
        let mut lines = Vec::new();
        while !self.takes("}") {
            self.annotations()?;
            let kind = self.kind(scope, MAX_DEPTH)?;
            for (field, kind) in self.declared(&kind)? {
                lines.push(format!("{kind} {field}"));
            }
        }
        self.expect(";")?;
        self.known.insert(name.clone());
        self.structs.push((plain_name(&name), lines));
        Ok(())
    }

    /// The names that are declared with a type, each with its type as an array, up to the `;`.
    fn declared(&mut self, kind: &str) -> Result<Vec<(&'a str, String)>, DefinitionError> {
        let mut declared = Vec::new();
        loop {
            let name = self.name()?;
            let mut sizes = Vec::new();
            while self.takes("[") {
                sizes.push(format!("[{}]", self.number()?));
                self.expect("]")?;
            }
            // IDL names the outermost size first, `.msg` files last.
            sizes.reverse();
            declared.push((name, format!("{kind}{}", sizes.concat())));
            if !self.takes(",") {
                self.expect(";")?;
                return Ok(declared);
            }
        }
    }

    /// A type, as `.msg` files write it.
    fn kind(&mut self, scope: &[&'a str], depth: usize) -> Result<String, DefinitionError> {
        if depth == 0 {
            return Err(self.unexpected("fewer sequences in each other"));
        }
        let start = self.at;
        let word = self.name()?;
        let plain = match word {
            "boolean" => "bool",
            "octet" => "byte",
            "char" | "int8" | "uint8" | "int16" | "uint16" | "int32" | "uint32" | "int64"
            | "uint64" => word,
            "short" => "int16",
            "float" => "float32",
            "double" => "float64",
            "long" if self.takes("long") => "int64",
            "long" if self.peek() != Some("double") => "int32",
            "unsigned" if self.takes("short") => "uint16",
            "unsigned" if self.takes("long") && self.takes("long") => "uint64",
            "unsigned" if self.tokens[self.at - 1].text == "long" => "uint32",
            "string" | "wstring" => {
                if self.takes("<") {
                    self.number()?;
                    self.expect(">")?;
                }
                word
            }
            "sequence" => {
                self.expect("<")?;
                let item = self.kind(scope, depth - 1)?;
                if self.takes(",") {
                    self.number()?;
                }
                self.expect(">")?;
                return Ok(format!("{item}[]"));
            }
            "long" | "unsigned" | "wchar" | "any" | "fixed" | "map" | "union" => {
                self.at = start;
                return Err(self.unexpected("a type that ROS has"));
            }
            name => return Ok(self.named(scope, name)),
        };
        Ok(plain.to_owned())
    }

    /// A type by its name, which is looked up from the innermost scope outwards.
    fn named(&self, scope: &[&'a str], name: &str) -> String {
        let name = name.trim_start_matches("::").replace("::", "/");
        for outer in (0..=scope.len()).rev() {
            let full = joined(&scope[..outer], &name);
            if let Some(kind) = self.aliases.get(&full) {
                return kind.clone();
            }
            if self.known.contains(&full) {
                return plain_name(&full);
            }
        }
        plain_name(&name)
    }
}

fn joined(scope: &[&str], name: &str) -> String {
    scope
        .iter()
        .chain([&name])
        .copied()
        .collect::<Vec<_>>()
        .join("/")
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let length = match first {
            '"' | '\'' => quoted_length(rest, first),
            _ if rest.starts_with("//") || first == '#' => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        let is_skipped = first.is_whitespace()
            || first == '#'
            || token.starts_with("//")
            || token.starts_with("/*");
        if !is_skipped {
            tokens.push(Token { line, text: token });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The length of a quoted text, with its quotes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `rosidl` makes it of a `.msg` file.
    const POSE: &str = r##"
// generated from rosidl_adapter/resource/msg.idl.em
#include "geometry_msgs/msg/Point.idl"

module geometry_msgs {
  module msg {
    typedef double double__36[36];
    module Pose_Constants {
      const string NAME = "a;}";
    };
    @verbatim (language="comment", text=
      "A \"pose\" (of a body)" "\n"
      "# with } and ;")
    struct Pose {
      geometry_msgs::msg::Point position, origin;
      @unit (value="m") double__36 covariance;
      sequence<string<5>, 3> names;
      sequence<double__36> many;
      unsigned long long a; unsigned long b; unsigned short c; long d; long long e;
      /* two
         lines */
      @default (value=TRUE) boolean ok;
      octet bytes[2][3];
      Kind kind;
    };
  };
};
"##;

    #[test]
    fn structs_become_the_lines_of_message_files() {
        let text = POSE.replace("typedef double", "enum Kind { A, B };\ntypedef double");
        let structs = structs(&text).unwrap();
        let [(name, lines)] = structs.as_slice() else {
            panic!("{structs:?}")
        };
        assert_eq!(name, "geometry_msgs/Pose");
        let expected = [
            "geometry_msgs/Point position",
            "geometry_msgs/Point origin",
            "float64[36] covariance",
            "string[] names",
            "float64[36][] many",
            "uint64 a",
            "uint32 b",
            "uint16 c",
            "int32 d",
            "int64 e",
            "bool ok",
            "byte[3][2] bytes",
            "uint32 kind",
        ];
        assert_eq!(lines, &expected);
    }

    #[test]
    fn errors_name_line_found_and_expected() {
        for (text, expected) in [
            ("union U {};", "line 1: found `union`, expected `module`"),
            (
                "struct A {\n map<long, long> m; };",
                "line 2: found `map`, expected a type",
            ),
            ("struct A { long double x; };", "found `long`"),
            (
                "struct A { @optional long x; };",
                "found `optional`, expected no `@optional`",
            ),
            ("struct A : B { };", "found `:`, expected `{`"),
            (
                "struct A { long x[0]; };",
                "found `0`, expected a positive number",
            ),
            ("struct A { long x", "found `the end`, expected `;`"),
            ("module a { struct", "expected a name"),
            ("}", "expected the end"),
            ("@x(", "expected `)`"),
        ] {
            let error = structs(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let deep = "sequence<".repeat(100_000);
        assert!(structs(&format!("struct A {{ {deep}")).is_err());
        assert!(structs(&"module a {".repeat(100_000)).is_err());
    }
}
