//! The outputs that a command declares (R47): as paths of any kind, or, by older clients, as files and directories. If
//! there are paths, the older lists are ignored.

use crate::Failure;
use execution::reapi::{Command, command::OutputDirectoryFormat};
use execution::{InvalidPath, RelativePath};

#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub working_directory: RelativePath,
    pub outputs: Vec<Output>,
    pub format: OutputDirectoryFormat,
    pub properties: Properties,
    pub allow_absolute_symlinks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// As the client wrote it; the result names it in the same way.
    pub text: String,
    /// From the input root.
    pub path: RelativePath,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Any,
    File,
    Directory,
}

/// The properties of files that the client requests (R51).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub modified: bool,
    pub unix_mode: bool,
}

impl Expected {
    #[allow(deprecated, reason = "clients of version 2.0 know only these fields")]
    pub(crate) fn from_command(
        command: &Command,
        allow_absolute_symlinks: bool,
    ) -> Result<Expected, Failure> {
        let text = &command.working_directory;
        let working_directory = path("working directory", text, RelativePath::parse(text))?;
        let mut outputs = Vec::new();
        if command.output_paths.is_empty() {
            add(&mut outputs, &working_directory, &command.output_files, Kind::File)?;
            add(&mut outputs, &working_directory, &command.output_directories, Kind::Directory)?;
        } else {
            add(&mut outputs, &working_directory, &command.output_paths, Kind::Any)?;
        }
        let format = OutputDirectoryFormat::try_from(command.output_directory_format)
            .map_err(|_| Failure::invalid_action("the format of output directories is not known"))?;
        let is_wanted = |name: &str| command.output_node_properties.iter().any(|wanted| wanted == name);
        let properties = Properties { modified: is_wanted("mtime"), unix_mode: is_wanted("unix_mode") };
        Ok(Expected { working_directory, outputs, format, properties, allow_absolute_symlinks })
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &RelativePath> {
        self.outputs.iter().map(|output| &output.path)
    }
}

fn add(
    outputs: &mut Vec<Output>,
    directory: &RelativePath,
    texts: &[String],
    kind: Kind,
) -> Result<(), Failure> {
    let mut texts: Vec<&String> = texts.iter().collect();
    texts.sort_unstable();
    texts.dedup();
    for text in texts {
        if text.is_empty() && kind == Kind::File {
            return Err(Failure::invalid_action("an output file has no name"));
        }
        let resolved = match kind {
            Kind::Any => directory.resolve(text),
            Kind::File | Kind::Directory => RelativePath::parse(text).map(|path| directory.join(&path)),
        };
        let path = path("output", text, resolved)?;
        outputs.push(Output { text: text.clone(), path, kind });
    }
    Ok(())
}

fn path(what: &str, text: &str, path: Result<RelativePath, InvalidPath>) -> Result<RelativePath, Failure> {
    path.map_err(|why| {
        Failure::invalid_action(format!("the {what} {text:?} is not a path below the input root: it {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    #[allow(deprecated)]
    fn r47_paths_win_over_the_older_lists() {
        let old = Command {
            output_files: texts(&["f", "f"]),
            output_directories: texts(&["d"]),
            ..Command::default()
        };
        let read = Expected::from_command(&old, false).unwrap();
        let kinds: Vec<_> = read.outputs.iter().map(|output| (output.text.as_str(), output.kind)).collect();
        assert_eq!(kinds, [("f", Kind::File), ("d", Kind::Directory)]);
        let new = Command { output_paths: texts(&["p"]), ..old };
        let read = Expected::from_command(&new, false).unwrap();
        assert_eq!((read.outputs.len(), read.outputs[0].kind), (1, Kind::Any));
    }

    #[test]
    fn i10_i11_paths_out_of_the_working_directory_and_working_directories_out_of_the_root_are_refused() {
        for bad in ["/a", "../a", "a/../../b", "a//b", "a/"] {
            let output = Command { output_paths: texts(&[bad]), ..Command::default() };
            assert_eq!(
                Expected::from_command(&output, false).unwrap_err().code,
                Failure::INVALID_ACTION,
                "{bad}"
            );
            let working = Command { working_directory: bad.to_owned(), ..Command::default() };
            assert!(Expected::from_command(&working, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn r51_the_command_names_the_node_properties_that_it_wants() {
        let command = Command { output_node_properties: texts(&["mtime"]), ..Command::default() };
        let expected = Properties { modified: true, unix_mode: false };
        assert_eq!(Expected::from_command(&command, false).unwrap().properties, expected);
    }
}
