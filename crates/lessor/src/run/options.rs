//! The command line of `lessor run`.

use std::path::{Path, PathBuf};

use execution::RelativePath;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::client::Error;
use crate::client::connection::{Connection, parse_pair};
use crate::client::duration::parse_ms;

#[derive(clap::Args)]
#[command(override_usage = "lessor run [OPTIONS] -- <COMMAND>...\n       lessor run <COMMAND>... [OPTIONS]")]
#[command(after_help = "\
The command finds the content of --input in its directory and nothing else of this machine, unless it runs on this \
machine: a worker that runs commands as plain processes lets them see its own files. Its standard input is empty. \
Directories that hold a ledger of Lessor are left out of the inputs, and so are the outputs of an earlier run.

Its output comes when it has ended, and then the files and directories named by --output are written below \
--output-dir under the same paths: files of the same name are replaced, whole or not at all; others stay. No symbolic \
link on the way is followed. What an output is not there for is told, and is no failure.

Without --, options are recognized anywhere among the words of the command, and --output names the directory here that \
receives the results: all files that the command made or replaced. What the command itself put into a directory of that \
name is written there too.

The same command with the same inputs, environment, platform, outputs and timeout that exited with 0 before is not run \
again: its output and its files come from the cache.

If the server is killed and comes back within a minute, this goes on. Ctrl-C cancels the command.

Examples:
  lessor run -- uname -a
  lessor run --input . --output hello -- cc -O2 -o hello hello.c
  lessor run echo hello --input . --output ./outputs
  lessor run --input tests --env TZ=UTC --platform ISA=x86_64 --timeout 5m -- ./all.sh

Exit codes: the command's own, 128 and the number of the signal that ended it; 124 it took longer than --timeout; 125 \
it was not run to its end, or its outputs could not be written; 130 and 143 this was interrupted; 2 wrong usage.")]
pub(crate) struct Options {
    /// The directory whose content the command finds where it runs [default: an empty one]
    #[arg(long, value_name = "DIR")]
    pub input: Option<PathBuf>,

    /// Inputs to leave out: a pattern as in .gitignore, such as target/ or *.o; may be repeated
    #[arg(long = "exclude", value_name = "GLOB", requires = "input")]
    exclude: Vec<String>,

    /// Leave out the inputs that .gitignore files in the input directory name, and .git
    #[arg(long, requires = "input")]
    pub gitignore: bool,

    /// A file or directory that the command makes, relative to where it runs; may be repeated. Without --: the directory
    /// that receives the results
    #[arg(long = "output", value_name = "PATH")]
    output: Vec<String>,

    /// Where outputs are written [default: .]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Where in the inputs the command runs [default: at their top]
    #[arg(long, value_name = "DIR", value_parser = relative)]
    pub working_directory: Option<RelativePath>,

    /// What a worker must offer to get the command, such as OSFamily=linux; may be repeated
    #[arg(long = "platform", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub platform: Vec<(String, String)>,

    /// A variable of the command's environment; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub environment: Vec<(String, String)>,

    /// How long the command may run: 500ms, 90s, 5m, 2h [default: the server's longest]
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    pub timeout: Option<u64>,

    /// Run it whatever is known of it, and do not remember how it ended
    #[arg(long)]
    pub no_cache: bool,

    /// Say nothing beside the command's own output, but errors
    #[arg(long, short)]
    pub quiet: bool,

    /// The instance to act in [default: the workspace]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub instance: Option<String>,

    #[command(flatten)]
    pub connection: Connection,

    /// The command and its arguments; with -- before them, they may be anything
    #[arg(required_unless_present = "after", value_name = "COMMAND")]
    words: Vec<String>,

    #[arg(last = true, hide = true, value_name = "COMMAND")]
    after: Vec<String>,
}

/// What the options come to.
#[derive(Debug)]
pub(crate) struct Plan {
    pub command: Vec<String>,
    pub outputs: Vec<RelativePath>,
    /// Where outputs are written.
    pub to: PathBuf,
    /// Whether the results are all files that the command made or replaced.
    pub is_whole: bool,
    /// Patterns of inputs to leave out, relative to the input directory.
    pub exclude: Gitignore,
}

impl Options {
    /// Checks what the two forms of the command line mean: with and without `--` (S3-52).
    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        let exclude = self.patterns()?;
        let command = [&self.words[..], &self.after].concat();
        if !self.after.is_empty() || self.output.is_empty() {
            let output =
                |text: &String| relative(text).map_err(|why| Error::Usage(format!("--output: {why}")));
            let outputs = self.output.iter().map(output).collect::<Result<_, _>>()?;
            let to = self.output_dir.clone().unwrap_or_else(|| ".".into());
            return Ok(Plan { command, outputs, to, is_whole: false, exclude });
        }
        match (&self.output[..], &self.output_dir) {
            ([to], None) => {
                let (outputs, to) = (vec![RelativePath::default()], PathBuf::from(to));
                Ok(Plan { command, outputs, to, is_whole: true, exclude })
            }
            _ => Err(Error::Usage(
                "without -- before the command, --output names the one directory that receives the results; to name \
                 outputs, write `lessor run --output PATH --output-dir DIR -- COMMAND`"
                    .to_owned(),
            )),
        }
    }

    fn patterns(&self) -> Result<Gitignore, Error> {
        let mut patterns = GitignoreBuilder::new(self.input.as_deref().unwrap_or(Path::new(".")));
        for pattern in &self.exclude {
            let added = patterns.add_line(None, pattern);
            added.map_err(|error| Error::Usage(format!("--exclude {pattern:?}: {error}")))?;
        }
        patterns.build().map_err(|error| Error::Usage(format!("--exclude: {error}")))
    }

    /// The default workspace has no name as an instance, so that servers which know none are served too.
    pub(crate) fn instance_name(&self) -> String {
        let workspace = self.connection.workspace.as_str();
        let named = (workspace != wire::DEFAULT_SCOPE_NAME).then_some(workspace);
        self.instance.as_deref().or(named).unwrap_or_default().to_owned()
    }
}

/// A path as people write it: `./out/` is `out`.
pub(super) fn relative(text: &str) -> Result<RelativePath, String> {
    let parts: Vec<&str> = text.split('/').filter(|part| *part != ".").collect();
    let trimmed = parts.join("/");
    let trimmed = trimmed.trim_end_matches('/');
    if text.is_empty() || (text.starts_with('/') && trimmed.is_empty()) {
        return Err("it must be a path relative to where the command runs".to_owned());
    }
    RelativePath::parse(trimmed).map_err(|why| format!("{text:?} {why}; it must stay where the command runs"))
}

/// No time at all would be none to the protocol.
fn timeout(text: &str) -> Result<u64, String> {
    match parse_ms(text)? {
        0 => Err("it must be longer than nothing".to_owned()),
        ms => Ok(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_as_people_write_it() {
        for (text, is) in [("a", "a"), ("./a/b/", "a/b"), ("a/./b", "a/b"), (".", ""), ("./", "")] {
            assert_eq!(relative(text).unwrap().to_string(), is, "{text}");
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for text in ["", "/", "/a", "..", "a/../b", "../a", "a//b", "a\0"] {
            assert!(relative(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_timeout_is_some_time() {
        assert!(timeout("0").is_err() && timeout("0s").is_err() && timeout("5").is_err());
        assert_eq!(timeout("2m"), Ok(120_000));
    }
}
