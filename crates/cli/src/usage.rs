//! Tips for command lines that cannot be parsed.

use std::path::Path;

use clap::{
    Command, CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};
use nervure_protocol::nearest;

use crate::arguments::Arguments;

/// Adds tips to an error.
pub fn with_tips(mut error: clap::Error) -> clap::Error {
    let root = Arguments::command();
    match error.kind() {
        ErrorKind::InvalidSubcommand => add_nearest_command(&mut error, &root),
        ErrorKind::UnknownArgument => add_option_of_dataflow(&mut error, &root),
        _ => {}
    }
    error
}

/// Adds the command that was probably meant. The parser would name several, some of them with
/// little in common with the word.
fn add_nearest_command(error: &mut clap::Error, root: &Command) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand).cloned()
    else {
        return;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    let mut family = root;
    for argument in std::env::args().skip(1) {
        family = family.find_subcommand(argument).unwrap_or(family);
    }
    let near = nearest(&word, names(family)).map(str::to_owned);
    let elsewhere = root
        .get_subcommands()
        .find(|one| names(one).any(|name| name == word));
    let is_dataflow = word.ends_with(".yml") || word.ends_with(".yaml");
    let tip = match (near, elsewhere) {
        (Some(near), _) => {
            let near = ContextValue::Strings(vec![near]);
            error.insert(ContextKind::SuggestedSubcommand, near);
            return;
        }
        (None, Some(family)) => format!("`nervure {} {word}` exists", family.get_name()),
        (None, None) if is_dataflow && Path::new(&word).is_file() => {
            format!("`nervure run {word}` runs a dataflow file")
        }
        (None, None) => return,
    };
    add_tip(error, tip);
}

fn names(command: &Command) -> impl Iterator<Item = &str> {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    shown.map(Command::get_name)
}

/// Adds `-d` for a lone word in a command that takes `-d NAME`: the word is probably that name.
fn add_option_of_dataflow(error: &mut clap::Error, root: &Command) {
    let command = std::env::args().nth(1);
    let command = command.and_then(|name| root.find_subcommand(name));
    let takes_dataflow_alone = command.is_some_and(|command| {
        let mut arguments = command.get_arguments();
        command.get_positionals().next().is_none()
            && arguments.any(|argument| argument.get_id() == "dataflow")
    });
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidArg)
        && takes_dataflow_alone
        && !name.starts_with('-')
    {
        let tip = format!("name a dataflow with `-d {name}`");
        add_tip(error, tip);
    }
}

fn add_tip(error: &mut clap::Error, tip: String) {
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
}
