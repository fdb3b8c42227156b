//! How Python programs find the module `dora`.
//!
//! The Python package `nervure` has a folder that holds only a package `dora`. A folder that is
//! first on PYTHONPATH precedes installed packages, so programs written for dora run unchanged,
//! also where dora itself is installed. A program that does not import `dora` pays nothing.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs, iter,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The folder with the package `dora`, from the folder that holds the package `nervure`.
const DORA_FOLDER: &str = "nervure/_dora_path";

/// The PYTHONPATH of a node with the environment variables `own` of the file: the folder of `dora`,
/// then the value in the file or in this process. `None` if the Python package is not installed
/// beside this command.
pub fn python_path(own: &BTreeMap<String, String>) -> Option<OsString> {
    const NAME: &str = "PYTHONPATH";
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER
        .get_or_init(|| dora_folder(&env::current_exe().ok()?))
        .as_ref()?;
    let given = own
        .get(NAME)
        .map(OsString::from)
        .or_else(|| env::var_os(NAME));
    with_first(folder, given)
}

/// A search path with `folder` first. `None` if a colon in its name makes that impossible.
fn with_first(folder: &Path, given: Option<OsString>) -> Option<OsString> {
    // An empty variable has no entries; an empty entry is the current folder.
    let given = given.filter(|given| !given.is_empty()).unwrap_or_default();
    let rest = env::split_paths(&given).skip(usize::from(given.is_empty()));
    env::join_paths(iter::once(folder.to_owned()).chain(rest)).ok()
}

/// The folder of the Python package that was installed together with `program`.
fn dora_folder(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    package_folders(prefix)
        .into_iter()
        .map(|folder| folder.join(DORA_FOLDER))
        .find(|folder| folder.join("dora/__init__.py").is_file())
}

/// The folders where installers put packages whose programs are in `prefix/bin`.
fn package_folders(prefix: &Path) -> Vec<PathBuf> {
    // `pip install --target` puts packages beside `bin`.
    let mut folders = vec![prefix.to_owned()];
    for library in ["lib", "lib64"] {
        let versions = fs::read_dir(prefix.join(library)).into_iter().flatten();
        for version in versions.flatten().map(|entry| entry.path()) {
            let name = version.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with("python3") {
                continue;
            }
            for packages in ["site-packages", "dist-packages"].map(|name| version.join(name)) {
                // A development install refers to its sources by this file.
                let link = fs::read_to_string(packages.join("nervure.pth")).unwrap_or_default();
                folders.push(packages);
                folders.extend(link.lines().map(PathBuf::from));
            }
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(packages: &Path) -> PathBuf {
        let folder = packages.join(DORA_FOLDER);
        fs::create_dir_all(folder.join("dora")).unwrap();
        fs::write(folder.join("dora/__init__.py"), "").unwrap();
        folder
    }

    #[test]
    fn the_package_is_found_beside_the_command() {
        let prefix = tempfile::tempdir().unwrap();
        let program = prefix.path().join("bin/nervure");
        assert_eq!(dora_folder(&program), None);
        for packages in [
            "lib/python3.11/site-packages",
            "lib64/python3.10/dist-packages",
            ".",
        ] {
            let packages = prefix.path().join(packages);
            let folder = install(&packages);
            assert_eq!(
                dora_folder(&program).map(|found| found.canonicalize().unwrap()),
                Some(folder.canonicalize().unwrap())
            );
            fs::remove_dir_all(packages.join("nervure")).unwrap();
        }
    }

    #[test]
    fn the_sources_of_a_development_install_are_found() {
        let prefix = tempfile::tempdir().unwrap();
        let sources = tempfile::tempdir().unwrap();
        let folder = install(sources.path());
        let packages = prefix.path().join("lib/python3.12/site-packages");
        fs::create_dir_all(&packages).unwrap();
        fs::write(
            packages.join("nervure.pth"),
            format!("{}\n", sources.path().display()),
        )
        .unwrap();
        assert_eq!(
            dora_folder(&prefix.path().join("bin/nervure")),
            Some(folder)
        );
    }

    #[test]
    fn the_given_path_is_kept() {
        let first = Path::new("/dora");
        for (given, expected) in [
            (None, "/dora"),
            (Some(""), "/dora"),
            (Some("/a:/b"), "/dora:/a:/b"),
            (Some("/a:"), "/dora:/a:"),
        ] {
            let given = given.map(OsString::from);
            assert_eq!(with_first(first, given), Some(expected.into()));
        }
        assert_eq!(with_first(Path::new("/with:colon"), None), None);
    }
}
