//! The definition that a name on the command line stands for.

use std::sync::Arc;

use nervure_types::{Definition, Library, humble, standard_names, standard_type};

use crate::failure::Failure;

/// A standard type, also without its version; or a message of ROS 2.
pub(super) fn find(name: &str) -> Result<(String, Arc<Definition>), Failure> {
    let standard = |wanted: &str| {
        let known = wanted.parse().ok()?;
        Some((wanted.to_owned(), standard_type(&known)?))
    };
    let found = standard(name).or_else(|| standard(&format!("{name}@1")));
    if let Some(found) = found {
        return Ok(found);
    }
    let plain = nervure_types::plain_name(name);
    if humble().has(&plain) {
        let definition = Library::new(&[humble()]).definition(&plain);
        let definition = definition.map_err(|error| Failure::internal(error.to_string()))?;
        return Ok((plain, definition));
    }
    let standard: Vec<String> = standard_names().map(|name| name.to_string()).collect();
    let all = standard.iter().map(String::as_str).chain(humble().names());
    let hint = match nervure_protocol::nearest(name, all) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`nervure types list` lists the standard types".to_owned(),
    };
    Err(Failure::invalid(format!("there is no type `{name}`")).hint(hint))
}
