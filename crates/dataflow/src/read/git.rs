//! Reads the repository of a node: `git`, with `branch`, `tag` or `rev`.

use std::path::{Path, PathBuf};

use super::map::Keys;
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::graph::{GitReference, GitSource};
use crate::keys::Shape;
use crate::quote::quoted;
use crate::tree::Text;

/// The folder of all clones, beside the dataflow file.
const CLONES: &str = "git";
/// The folder of a clone of the default branch.
const DEFAULT_BRANCH: &str = "default";

/// The repository of a node, with its folder below `directory`.
pub(super) fn read_git(
    reader: &mut Reader<'_>,
    directory: &Path,
    keys: &Keys<'_>,
) -> Option<GitSource> {
    let mut references = Vec::new();
    for (key, make) in [
        ("branch", GitReference::Branch as fn(String) -> GitReference),
        ("tag", GitReference::Tag),
        ("rev", GitReference::Rev),
    ] {
        if let Some(entry) = keys.entry(key) {
            let text = reader.text(&entry.value, Shape::Words);
            let text = text.filter(|text| is_argument(reader, text))?;
            references.push((&entry.key, make(text.text)));
        }
    }
    if let [(first, _), (second, _), ..] = references.as_slice() {
        let message = "a node has one of `branch`, `tag` and `rev`";
        let finding = Finding::error(Code::ConflictingKeys, second.span, message);
        reader.report(
            finding
                .hint("remove the others")
                .related(first.span, "first here"),
        );
    }
    let Some(value) = keys.value("git") else {
        if let Some((key, _)) = references.first() {
            let message = format!("`{}` has no meaning without `git`", key.text);
            let finding = Finding::error(Code::ConflictingKeys, key.span, message);
            reader.report(finding.hint("add `git:` with the URL of the repository"));
        }
        return None;
    };
    let url = reader.text(value, Shape::Words);
    let url = url.filter(|url| is_argument(reader, url))?.text;
    let reference = references.pop().map(|(_, reference)| reference);
    let name = match &reference {
        Some(GitReference::Branch(name) | GitReference::Tag(name) | GitReference::Rev(name)) => {
            name.as_str()
        }
        None => DEFAULT_BRANCH,
    };
    let mut folder = directory.join(CLONES);
    folder.extend(path_of(&url));
    folder.push(path_of(name).join("_"));
    Some(GitSource {
        url,
        reference,
        folder: folder.components().collect::<PathBuf>(),
    })
}

/// Whether `git` takes the text as a name: an option begins with a dash.
fn is_argument(reader: &mut Reader<'_>, text: &Text) -> bool {
    let is_valid = !text.text.starts_with('-') && !text.text.contains(char::is_control);
    if !is_valid {
        let message = format!("{} cannot be given to `git`", quoted(&text.text));
        reader.report(Finding::error(Code::InvalidValue, text.span, message));
    }
    is_valid
}

/// The folders for a URL, as dora names them: `github.com`, `dora-rs`, `dora.git`.
fn path_of(url: &str) -> Vec<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    rest.split(['/', ':', '@'])
        .filter(|part| !matches!(*part, "" | "." | ".."))
        .map(|part| part.replace(|letter| !is_plain(letter), "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::path_of;

    #[test]
    fn a_url_becomes_a_path_below_the_folder_of_clones() {
        let path = ["github.com", "dora-rs", "dora.git"];
        assert_eq!(path_of("https://github.com/dora-rs/dora.git"), path);
        assert_eq!(path_of("ssh://github.com/dora-rs/../dora.git"), path);
        assert_eq!(
            path_of("git@github.com:dora-rs/dora.git"),
            ["git", "github.com", "dora-rs", "dora.git"]
        );
        assert_eq!(path_of("../.."), [""; 0]);
    }
}
