//! The command line that runs the program of a node.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use nervure_protocol::graph::{OperatorSource, OperatorSpec};

use crate::plan::Program;

/// The Python module that hosts operators.
const OPERATORS_MODULE: &str = "nervure.operators";

/// The command of this program that hosts operators in shared libraries.
const OPERATORS_COMMAND: &str = "__operators";

/// The command of this program that hosts components.
const HOST_COMMAND: &str = "__host";

/// The Python module that hosts nodes in Python.
const PYTHON_HOST_MODULE: &str = "nervure._host";

/// The Python module that runs a function as a node.
const FUNCTION_MODULE: &str = "nervure._function";

/// The command of this program that sends logs.
const LOG_OUTPUTS_COMMAND: &str = "__log-outputs";

/// The command line of a program of a node with the environment variables `own` of the file, without
/// the node's arguments.
///
/// # Errors
/// Why there is none, for people.
pub fn words(program: &Program, own: &BTreeMap<String, String>) -> Result<Vec<OsString>, String> {
    Ok(match program {
        Program::Python(script) => vec![python(own)?.into(), script.into()],
        Program::Function(function) => vec![
            python(own)?.into(),
            "-m".into(),
            FUNCTION_MODULE.into(),
            function.into(),
        ],
        Program::Executable(file) => vec![file.into()],
        Program::Command(name) => vec![name.into()],
        Program::Component(_) => host_words(program, own)?,
        Program::LogOutputs(_) => own_command(LOG_OUTPUTS_COMMAND)?,
        Program::Dynamic | Program::Remote { .. } => {
            return Err("its keeper does not start it".to_owned());
        }
        Program::Operators(operators) if is_run_by_python(program) => vec![
            operators_python(operators, own)?.into(),
            "-m".into(),
            OPERATORS_MODULE.into(),
        ],
        Program::Operators(_) => own_command(OPERATORS_COMMAND)?,
    })
}

/// The command line of the host of such programs, with the environment variables `own` of the file.
///
/// # Errors
/// Why there is none, for people.
pub fn host_words(
    program: &Program,
    own: &BTreeMap<String, String>,
) -> Result<Vec<OsString>, String> {
    match program.is_python() {
        true => Ok(vec![
            python(own)?.into(),
            "-m".into(),
            PYTHON_HOST_MODULE.into(),
        ]),
        false => own_command(HOST_COMMAND),
    }
}

/// A command of `nervure`, which is also the program of the keeper.
fn own_command(command: &str) -> Result<Vec<OsString>, String> {
    let program = env::current_exe().map_err(|error| format!("cannot find `nervure`: {error}"))?;
    Ok(vec![program.into(), command.into()])
}

/// Whether a Python runs the program.
pub fn is_run_by_python(program: &Program) -> bool {
    let is_python = |operator: &OperatorSpec| matches!(operator.source, OperatorSource::Python(_));
    match program {
        Program::Python(_) | Program::Function(_) => true,
        Program::Operators(operators) => operators.iter().all(is_python),
        _ => false,
    }
}

/// The Python of operators: that of their conda environment if they name one.
fn operators_python(
    operators: &[OperatorSpec],
    own: &BTreeMap<String, String>,
) -> Result<PathBuf, String> {
    let named = operators.iter().find_map(|one| one.conda_env.as_deref());
    named.map_or_else(|| python(own), conda_python)
}

/// The Python of a conda environment. It is started directly: `conda run` closes the descriptor by
/// which a node reaches its keeper.
fn conda_python(environment: &str) -> Result<PathBuf, String> {
    let conda = env::var_os("CONDA_EXE").map(PathBuf::from).or_else(|| {
        let path = env::var_os("PATH")?;
        env::split_paths(&path)
            .map(|folder| folder.join("conda"))
            .find(|conda| conda.is_file())
    });
    let conda = conda.ok_or_else(|| {
        format!("`conda_env: {environment}` needs conda, and there is no `conda` on the PATH")
    })?;
    conda_environments(&conda, environment)
        .into_iter()
        .map(|folder| folder.join("bin/python"))
        .find(|python| python.is_file())
        .ok_or_else(|| {
            format!(
                "the conda at {} has no environment `{environment}` with a Python",
                conda.display()
            )
        })
}

/// The folders that may be those of a conda environment.
fn conda_environments(conda: &Path, name: &str) -> Vec<PathBuf> {
    // `conda` lies in `bin` or `condabin` of its own environment, which is called `base`.
    let base = conda.parent().and_then(Path::parent);
    if name == "base" {
        return base.map(Path::to_owned).into_iter().collect();
    }
    let mut folders: Vec<PathBuf> = env::var_os("CONDA_ENVS_PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default();
    folders.extend(base.map(|base| base.join("envs")));
    folders.extend(env::home_dir().map(|home| home.join(".conda/envs")));
    folders.iter().map(|folder| folder.join(name)).collect()
}

/// The Python of a node with the environment variables `own` of the file. In this order: that of
/// `VIRTUAL_ENV`; that of the environment in which `nervure` itself is installed, so that
/// `.venv/bin/nervure run` needs no activation; the first `python3` on the PATH.
///
/// # Errors
/// Why there is none, for people.
pub fn python(own: &BTreeMap<String, String>) -> Result<PathBuf, String> {
    let variable = |name: &str| own.get(name).map(Into::into).or_else(|| env::var_os(name));
    if let Some(root) = variable("VIRTUAL_ENV").filter(|root| !root.is_empty()) {
        let python = Path::new(&root).join("bin/python");
        let root = root.display();
        return match is_there(&python) {
            Ok(true) => Ok(python),
            Ok(false) => Err(format!(
                "VIRTUAL_ENV is `{root}`, and there is no `bin/python` in it"
            )),
            Err(why) => Err(format!("VIRTUAL_ENV is `{root}`, and {why}")),
        };
    }
    if let Some(python) = python_beside(&env::current_exe().unwrap_or_default())? {
        return Ok(python);
    }
    let path = variable("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join("python3"))
        .find(|python| python.is_file())
        .ok_or_else(|| "no `python3` on the PATH, and no VIRTUAL_ENV is active".to_owned())
}

/// The Python of the virtual environment in which `program` is installed.
fn python_beside(program: &Path) -> Result<Option<PathBuf>, String> {
    let bin = program.parent().unwrap_or(Path::new(""));
    let python = bin.join("python");
    let root = bin.parent().unwrap_or(Path::new(""));
    Ok((root.join("pyvenv.cfg").is_file() && is_there(&python)?).then_some(python))
}

/// Whether a Python is there. It may be a link to that of another user.
///
/// # Errors
/// Why it cannot be used although there is one, for people.
fn is_there(python: &Path) -> Result<bool, String> {
    let error = match fs::metadata(python) {
        Ok(_) => return Ok(true),
        Err(error) => error,
    };
    let target = fs::read_link(python).ok();
    if error.kind() == io::ErrorKind::NotFound && target.is_none() {
        return Ok(false);
    }
    let link = target.map(|target| format!(", a link to `{}`,", target.display()));
    Err(format!(
        "`{}`{} cannot be used by this user: {error}",
        python.display(),
        link.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(source: OperatorSource) -> OperatorSpec {
        OperatorSpec {
            id: "op".to_owned(),
            source,
            conda_env: None,
            inputs: vec!["image".to_owned()],
            outputs: vec!["boxes".to_owned()],
        }
    }

    #[test]
    fn a_module_hosts_operators_and_reads_them_as_json() {
        let program = Program::Operators(vec![operator(OperatorSource::Python("/a/op.py".into()))]);
        let words = words(&program, &BTreeMap::new()).unwrap();
        assert_eq!(words[1..], ["-m", "nervure.operators"]);
        let json = r#"[{"id":"op","python":"/a/op.py","inputs":["image"],"outputs":["boxes"]}]"#;
        assert_eq!(
            program.environment(),
            Some(("NERVURE_OPERATORS", json.to_owned()))
        );
    }

    #[test]
    fn this_program_hosts_operators_in_shared_libraries() {
        let library = OperatorSource::SharedLibrary("/a/libop.so".into());
        let program = Program::Operators(vec![operator(library)]);
        let words = words(&program, &BTreeMap::new()).unwrap();
        assert_eq!(
            words,
            [
                env::current_exe().unwrap().into_os_string(),
                "__operators".into()
            ]
        );
        let (_, json) = program.environment().unwrap();
        assert!(json.contains(r#""shared_library":"/a/libop.so""#), "{json}");
    }

    #[test]
    fn a_python_that_cannot_be_reached_is_not_called_missing() {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        assert_eq!(is_there(&python), Ok(false));
        let target = folder.path().join("of-another-user");
        std::os::unix::fs::symlink(&target, &python).unwrap();
        let why = is_there(&python).unwrap_err();
        assert!(
            why.contains("a link to") && why.contains("of-another-user"),
            "{why}"
        );
        // A name below a file gives another error than a missing one, also for root.
        fs::write(&target, "").unwrap();
        assert_eq!(is_there(&python), Ok(true));
        let why = is_there(&target.join("python")).unwrap_err();
        assert!(why.contains("Not a directory"), "{why}");
    }

    #[test]
    fn a_conda_environment_is_a_folder_of_its_conda() {
        let found = |name| conda_environments(Path::new("/opt/conda/bin/conda"), name);
        assert_eq!(found("base"), [Path::new("/opt/conda")]);
        assert!(found("vision").contains(&PathBuf::from("/opt/conda/envs/vision")));
    }

    #[test]
    fn a_command_in_a_virtual_environment_runs_its_python() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("python"), "").unwrap();
        assert_eq!(
            python_beside(&bin.join("nervure")),
            Ok(None),
            "a folder with a `python` is not a virtual environment"
        );
        std::fs::write(folder.path().join("pyvenv.cfg"), "").unwrap();
        assert_eq!(
            python_beside(&bin.join("nervure")),
            Ok(Some(bin.join("python")))
        );
        assert_eq!(python_beside(Path::new("/")), Ok(None));
    }
}
