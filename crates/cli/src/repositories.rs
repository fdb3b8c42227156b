//! Clones the repositories of nodes.

use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

use nervure_dataflow::{GitReference, GitSource};

use crate::failure::Failure;

/// Clones a repository into its folder, or brings the branch of an existing clone up to date.
pub fn fetch(repository: &GitSource) -> Result<(), Failure> {
    let GitSource {
        url,
        reference,
        folder,
    } = repository;
    let is_cloned = folder.join(".git").exists();
    let wanted = match reference {
        Some(GitReference::Tag(_) | GitReference::Rev(_)) if is_cloned => return Ok(()),
        Some(GitReference::Branch(name) | GitReference::Tag(name) | GitReference::Rev(name)) => {
            name.as_str()
        }
        None => "HEAD",
    };
    if !is_cloned {
        note!("cloning {url} into {}", folder.display());
        fs::create_dir_all(folder).map_err(|error| {
            Failure::internal(format!("cannot make the folder {}", folder.display())).because(error)
        })?;
        git(folder, url, &["init", "--quiet"], Stdio::inherit())?;
    }
    // A server may not offer a commit by its name: then all branches contain it.
    let by_name = ["fetch", "--quiet", "--depth=1", "--", url, wanted];
    if git(folder, url, &by_name, Stdio::null()).is_ok() {
        let checkout = ["checkout", "--quiet", "--detach", "FETCH_HEAD"];
        return git(folder, url, &checkout, Stdio::inherit());
    }
    let branches = "+refs/heads/*:refs/remotes/origin/*";
    let everything = ["fetch", "--quiet", "--tags", "--", url, branches];
    git(folder, url, &everything, Stdio::inherit())?;
    let checkout = ["checkout", "--quiet", "--detach", wanted];
    git(folder, url, &checkout, Stdio::inherit())
}

/// Runs `git` in a folder.
fn git(folder: &Path, url: &str, arguments: &[&str], stderr: Stdio) -> Result<(), Failure> {
    let failed = |what: String| {
        Failure::internal(format!("the repository {url} cannot be cloned: {what}")).because(
            format!("`git {}` in {}", arguments.join(" "), folder.display()),
        )
    };
    // Stdout is for the data of `nervure build`.
    let status = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .stderr(stderr)
        .status()
        .map_err(|error| failed(error.to_string()))?;
    match status.success() {
        true => Ok(()),
        false => Err(failed(status.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &Path, arguments: &[&str]) {
        let own = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
        git(
            folder,
            "test",
            &[&own[..], arguments].concat(),
            Stdio::inherit(),
        )
        .unwrap();
    }

    #[test]
    fn a_repository_is_cloned_and_its_branch_followed() {
        let folder = tempfile::tempdir().unwrap();
        let origin = folder.path().join("origin");
        fs::create_dir(&origin).unwrap();
        run(&origin, &["init", "--quiet", "--initial-branch=main"]);
        let commit = |text: &str| {
            fs::write(origin.join("file"), text).unwrap();
            run(&origin, &["add", "."]);
            run(&origin, &["commit", "--quiet", "-m", text]);
        };
        commit("one");
        run(&origin, &["tag", "v1"]);
        let clone = |name: &str, reference| {
            let clone = folder.path().join(name);
            let repository = GitSource {
                url: origin.display().to_string(),
                reference,
                folder: clone.clone(),
            };
            fetch(&repository).unwrap();
            fs::read_to_string(clone.join("file")).unwrap()
        };
        let tag = || Some(GitReference::Tag("v1".to_owned()));
        assert_eq!(clone("default", None), "one");
        commit("two");
        assert_eq!(clone("default", None), "two");
        assert_eq!(clone("tag", tag()), "one");
        assert_eq!(clone("tag", tag()), "one");
        let output = Command::new("git")
            .args(["rev-parse", "--short", "v1"])
            .current_dir(&origin)
            .output()
            .unwrap();
        let commit = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        assert_eq!(clone("rev", Some(GitReference::Rev(commit))), "one");
    }
}
