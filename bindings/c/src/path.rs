//! Paths within values, such as `poses[3].position.x`.

use crate::status::Failure;

/// A step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

/// The steps of a path. The empty path is the whole value.
pub(crate) fn steps(path: &str) -> impl Iterator<Item = Result<Step<'_>, Failure>> {
    let mut rest = path;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let step = next(path, &mut rest);
        if step.is_err() {
            rest = "";
        }
        Some(step)
    })
}

fn next<'a>(path: &'a str, rest: &mut &'a str) -> Result<Step<'a>, Failure> {
    let at = path.len() - rest.len();
    let wrong = || {
        Failure::argument(format!(
            "the path `{path}` is wrong at byte {at}: expected fields and indices, as in `poses[3].position.x`"
        ))
    };
    if let Some(inside) = rest.strip_prefix('[') {
        let (index, after) = inside.split_once(']').ok_or_else(wrong)?;
        *rest = after;
        return Ok(Step::Index(index.parse().map_err(|_| wrong())?));
    }
    let name = match (rest.strip_prefix('.'), at) {
        (Some(name), 1..) => name,
        (None, 0) => rest,
        _ => return Err(wrong()),
    };
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (name, after) = name.split_at(end);
    *rest = after;
    match name {
        "" => Err(wrong()),
        name => Ok(Step::Field(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Step, steps};

    fn parsed(path: &str) -> Result<Vec<Step<'_>>, String> {
        let steps: Result<_, _> = steps(path).collect();
        steps.map_err(|failure| failure.message.into_owned())
    }

    #[test]
    fn paths_have_fields_and_indices() {
        use Step::{Field, Index};
        assert_eq!(parsed(""), Ok(vec![]));
        assert_eq!(parsed("a.b"), Ok(vec![Field("a"), Field("b")]));
        assert_eq!(parsed("a[3].x"), Ok(vec![Field("a"), Index(3), Field("x")]));
        assert_eq!(parsed("[0][12]"), Ok(vec![Index(0), Index(12)]));
        let wrong = [
            (".a", 0),
            ("a.", 1),
            ("a..b", 1),
            ("a[", 1),
            ("a[x]", 1),
            ("a[-1]", 1),
            ("[0]a", 3),
        ];
        for (path, at) in wrong {
            let message = parsed(path).unwrap_err();
            assert!(
                message.contains(&format!("`{path}` is wrong at byte {at}")),
                "{message}"
            );
        }
    }
}
