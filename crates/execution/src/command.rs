//! Checks a command by its text alone, before anything is queued or run (I10, I11, I19, R12).
//!
//! Paths are relative and stay within the input root: a worker must never be led out of the directory that it made.

use std::collections::HashSet;

use crate::limits::{MAX_ARGUMENT_BYTES, MAX_OUTPUTS};
use crate::reapi::Command;
use crate::{InvalidMessage, InvalidPath, RelativePath};

/// The properties of output files that can be reported beside their content (R51).
pub const NODE_PROPERTIES: [&str; 2] = ["mtime", "unix_mode"];

#[allow(deprecated)]
pub fn check(command: &Command) -> Result<(), InvalidMessage> {
    if command.arguments.is_empty() {
        return Err(invalid("the command has no arguments"));
    }
    let variables = &command.environment_variables;
    let texts = command.arguments.iter().chain(variables.iter().map(|variable| &variable.value));
    let bytes: usize = texts.clone().map(|text| text.len() + 1).sum();
    if bytes > MAX_ARGUMENT_BYTES {
        return Err(invalid(format!(
            "the command's arguments and environment have {bytes} bytes; at most {MAX_ARGUMENT_BYTES} are allowed"
        )));
    }
    if texts.clone().any(|text| text.contains('\0')) {
        return Err(invalid("the command has an argument or a variable that contains a NUL"));
    }
    let mut names = HashSet::new();
    for variable in variables {
        let name = variable.name.as_str();
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(invalid(format!("environment_variables: {name:?} cannot be a name")));
        }
        if !names.insert(name) {
            return Err(invalid(format!("environment_variables: {name:?} is given twice")));
        }
    }
    let unknown =
        command.output_node_properties.iter().find(|name| !NODE_PROPERTIES.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(invalid(format!(
            "output_node_properties: {name:?} is not known; mtime and unix_mode are"
        )));
    }
    let text = &command.working_directory;
    let directory = path("working_directory", text, RelativePath::parse(text))?;
    let lists = [
        ("output_paths", &command.output_paths),
        ("output_files", &command.output_files),
        ("output_directories", &command.output_directories),
    ];
    for (field, list) in lists {
        if list.len() > MAX_OUTPUTS {
            return Err(invalid(format!("{field}: a command has at most {MAX_OUTPUTS}")));
        }
        for text in list {
            let is_new = field == "output_paths";
            path(field, text, if is_new { directory.resolve(text) } else { RelativePath::parse(text) })?;
        }
    }
    check_nesting(&command.output_files)
}

/// A file cannot contain another output (I10). A path of unknown kind may be a directory that does.
fn check_nesting(files: &[String]) -> Result<(), InvalidMessage> {
    let known: HashSet<&str> = files.iter().map(String::as_str).collect();
    for file in files {
        let above = file.char_indices().filter(|(_, character)| *character == '/').map(|(at, _)| &file[..at]);
        if let Some(above) = above.into_iter().find(|above| known.contains(above)) {
            return Err(invalid(format!("output_files: {above:?} is a file and cannot hold {file:?}")));
        }
    }
    Ok(())
}

fn path(
    field: &str,
    text: &str,
    path: Result<RelativePath, InvalidPath>,
) -> Result<RelativePath, InvalidMessage> {
    path.map_err(|why| invalid(format!("{field}: {text:?} is not a path below the input root: it {why}")))
}

fn invalid(why: impl Into<String>) -> InvalidMessage {
    InvalidMessage::new(why)
}

#[cfg(test)]
#[allow(deprecated)]
mod tests {
    use super::*;
    use crate::reapi::command::EnvironmentVariable;

    fn refusal(change: impl Fn(&mut Command)) -> bool {
        let mut command = Command { arguments: vec!["true".into()], ..Command::default() };
        change(&mut command);
        check(&command).is_err()
    }

    #[test]
    fn i10_outputs_that_lead_elsewhere_are_refused() {
        assert!(!refusal(|command| command.output_paths = vec!["a".into(), "a/b".into(), String::new()]));
        for dots in ["a/../b", "./a", "."] {
            assert!(!refusal(|command| command.output_paths = vec![dots.into()]), "{dots:?}");
            assert!(refusal(|command| command.output_files = vec![dots.into()]), "{dots:?}");
            assert!(refusal(|command| command.output_directories = vec![dots.into()]), "{dots:?}");
        }
        let below = |depth: &'static str| {
            refusal(|command| {
                command.working_directory = "w".into();
                command.output_paths = vec![depth.into()];
            })
        };
        assert!(!below("../a") && below("../../a"));
        for bad in ["/a", "..", "a/../../b", "a//b", "a/", "a\0"] {
            assert!(refusal(|command| command.output_paths = vec![bad.into()]), "{bad:?}");
            assert!(refusal(|command| command.output_files = vec![bad.into()]), "{bad:?}");
            assert!(refusal(|command| command.output_directories = vec![bad.into()]), "{bad:?}");
        }
        assert!(refusal(|command| command.output_files = vec!["a".into(), "a/b".into()]));
    }

    #[test]
    fn r51_an_unknown_node_property_is_refused() {
        assert!(!refusal(|command| command.output_node_properties = vec!["mtime".into()]));
        assert!(refusal(|command| command.output_node_properties = vec!["colour".into()]));
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
