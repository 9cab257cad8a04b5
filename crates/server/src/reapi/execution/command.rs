//! What is wrong with a command by its text alone, told before anything is queued (I10, I11, I19, R12).
//!
//! Paths are relative, of single steps: a worker must never be led out of the directory that it made.

use std::collections::HashSet;

use tonic::Status;

use crate::reapi::messages::Command;

/// Most bytes of arguments and environment together: what Linux takes for a new process is a little more.
const MAX_ARGUMENT_BYTES: usize = 2 * 1_024 * 1_024;
/// What can be told of output files beside their content (R51).
pub const NODE_PROPERTIES: [&str; 2] = ["mtime", "unix_mode"];
/// Most outputs.
const MAX_OUTPUTS: usize = 100_000;

#[allow(deprecated)]
pub fn check(command: &Command) -> Result<(), Status> {
    if command.arguments.is_empty() {
        return Err(refused("the command has no arguments: there is nothing to run"));
    }
    let variables = &command.environment_variables;
    let words = command.arguments.iter().chain(variables.iter().map(|variable| &variable.value));
    let bytes: usize = words.clone().map(|word| word.len() + 1).sum();
    if bytes > MAX_ARGUMENT_BYTES {
        return Err(refused(&format!(
            "the command's arguments and environment have {bytes} bytes, too many"
        )));
    }
    if words.clone().any(|word| word.contains('\0')) {
        return Err(refused("the command has an argument or a variable with a NUL in it"));
    }
    let mut names = HashSet::new();
    for variable in variables {
        let name = variable.name.as_str();
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(refused(&format!("environment_variables: {name:?} cannot be a name")));
        }
        if !names.insert(name) {
            return Err(refused(&format!("environment_variables: {name:?} is given twice")));
        }
    }
    let unknown =
        command.output_node_properties.iter().find(|name| !NODE_PROPERTIES.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(refused(&format!(
            "output_node_properties: {name:?} is not known; mtime and unix_mode are"
        )));
    }
    path("working_directory", &command.working_directory)?;
    let lists = [
        ("output_paths", &command.output_paths),
        ("output_files", &command.output_files),
        ("output_directories", &command.output_directories),
    ];
    for (field, list) in lists {
        if list.len() > MAX_OUTPUTS {
            return Err(refused(&format!("{field}: at most {MAX_OUTPUTS} are looked for")));
        }
        for output in list {
            path(field, output)?;
        }
    }
    nested(&command.output_files)
}

/// A file cannot be above another output (I10). Of paths that may be directories, one may be above another.
fn nested(files: &[String]) -> Result<(), Status> {
    let known: HashSet<&str> = files.iter().map(String::as_str).collect();
    for file in files {
        let above = file.char_indices().filter(|(_, character)| *character == '/').map(|(at, _)| &file[..at]);
        if let Some(above) = above.into_iter().find(|above| known.contains(above)) {
            return Err(refused(&format!("output_files: {above:?} is a file and cannot hold {file:?}")));
        }
    }
    Ok(())
}

/// The empty path is the directory itself.
fn path(field: &str, path: &str) -> Result<(), Status> {
    let fault = match path {
        "" => return Ok(()),
        _ if path.starts_with('/') => "is absolute",
        _ if path.contains('\0') => "contains a NUL",
        _ if path.split('/').any(|step| matches!(step, "" | "." | "..")) => {
            "has a step that is empty, . or .., which could lead elsewhere"
        }
        _ => return Ok(()),
    };
    Err(refused(&format!("{field}: {path:?} {fault}")))
}

fn refused(why: &str) -> Status {
    Status::invalid_argument(why)
}

#[cfg(test)]
#[allow(deprecated)]
mod tests {
    use super::*;
    use crate::reapi::messages::command::EnvironmentVariable;

    fn refusal(change: impl Fn(&mut Command)) -> bool {
        let mut command = Command { arguments: vec!["true".into()], ..Command::default() };
        change(&mut command);
        check(&command).is_err()
    }

    #[test]
    fn i10_outputs_that_lead_elsewhere_are_refused() {
        assert!(!refusal(|command| command.output_paths = vec!["a".into(), "a/b".into(), String::new()]));
        for bad in ["/a", "..", "a/../b", "a//b", "./a", "a/", "a\0"] {
            assert!(refusal(|command| command.output_paths = vec![bad.into()]), "{bad:?}");
            assert!(refusal(|command| command.output_files = vec![bad.into()]), "{bad:?}");
            assert!(refusal(|command| command.output_directories = vec![bad.into()]), "{bad:?}");
        }
        assert!(refusal(|command| command.output_files = vec!["a".into(), "a/b".into()]));
    }

    #[test]
    fn i11_a_working_directory_outside_the_root_is_refused() {
        assert!(!refusal(|command| command.working_directory = "a/b".into()));
        for bad in ["/", "/a", "..", "a/..", "a/../.."] {
            assert!(refusal(|command| command.working_directory = bad.into()), "{bad:?}");
        }
    }

    #[test]
    fn i19_an_environment_that_no_process_can_have_is_refused() {
        let variable = |name: &str| EnvironmentVariable { name: name.into(), value: "x".into() };
        assert!(!refusal(|command| command.environment_variables = vec![variable("A"), variable("B")]));
        for bad in [&["A", "A"][..], &[""], &["A=B"], &["A\0"]] {
            let variables: Vec<_> = bad.iter().map(|name| variable(name)).collect();
            assert!(refusal(|command| command.environment_variables.clone_from(&variables)), "{bad:?}");
        }
        assert!(refusal(|command| command.arguments.push("x".repeat(MAX_ARGUMENT_BYTES))));
        assert!(refusal(|command| command.arguments.clear()));
    }
}
