//! The selection of inputs: outputs, patterns of `--exclude` and `.gitignore` files leave entries of the input directory
//! out. A directory that is left out is not read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::options::{Options, Plan};

#[derive(Default)]
pub(crate) struct Selection {
    /// Paths that are left out: what an earlier run wrote must not make the command another one.
    pub outputs: HashSet<PathBuf>,
    pub exclude: Option<Gitignore>,
    pub gitignore: bool,
}

/// The `.gitignore` files of a directory and its parents, from the top.
#[derive(Clone, Default)]
pub(crate) struct Patterns(Vec<Arc<Gitignore>>);

impl Selection {
    pub(super) fn new(options: &Options, plan: &Plan) -> Selection {
        let outputs = options.input.as_deref().map(|input| outputs(input, options, plan)).unwrap_or_default();
        Selection { outputs, exclude: Some(plan.exclude.clone()), gitignore: options.gitignore }
    }

    /// The patterns for the entries of a directory.
    pub(crate) fn enter(&self, directory: &Path, mut patterns: Patterns) -> Patterns {
        let file = directory.join(".gitignore");
        if self.gitignore && file.is_file() {
            let mut builder = GitignoreBuilder::new(directory);
            // A pattern that is not valid matches nothing, as in Git.
            let _ = builder.add(file);
            patterns.0.extend(builder.build().ok().map(Arc::new));
        }
        patterns
    }

    pub(super) fn is_output(&self, path: &Path) -> bool {
        self.outputs.contains(path)
    }

    pub(crate) fn excludes(&self, path: &Path, is_dir: bool, patterns: &Patterns) -> bool {
        let is_excluded =
            self.exclude.as_ref().is_some_and(|exclude| exclude.matched(path, is_dir).is_ignore());
        if is_excluded || (self.gitignore && path.ends_with(".git")) {
            return true;
        }
        let decided = patterns.0.iter().rev().map(|file| file.matched(path, is_dir));
        decided
            .into_iter()
            .find(|decided| !decided.is_none())
            .is_some_and(|decided: Match<_>| decided.is_ignore())
    }
}

/// The declared outputs, where the command makes them and where they are written, as paths below the input directory.
fn outputs(input: &Path, options: &Options, plan: &Plan) -> HashSet<PathBuf> {
    let working_directory = options.working_directory.clone().unwrap_or_default();
    // Where nothing was written yet, nothing has to be left out.
    let to = input.canonicalize().ok().zip(plan.to.canonicalize().ok());
    let to = to.and_then(|(input, to)| to.strip_prefix(&input).ok().map(Path::to_owned));
    let made = plan.outputs.iter().map(|path| PathBuf::from(working_directory.join(path).to_string()));
    let written = to.iter().flat_map(|to| plan.outputs.iter().map(|path| to.join(path.to_string())));
    let made = made.filter(|_| !plan.is_whole);
    made.chain(written).filter(|path| !path.as_os_str().is_empty()).map(|path| input.join(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn gitignore_files_count_from_the_top_and_the_nearest_wins() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at(".gitignore"), "*.o\n/target/\n").unwrap();
        fs::write(at("sub/.gitignore"), "!kept.o\n").unwrap();
        let selection = Selection { gitignore: true, ..Selection::default() };
        let top = selection.enter(dir.path(), Patterns::default());
        let sub = selection.enter(&at("sub"), top.clone());
        for (path, is_dir, patterns, expected) in [
            ("a.o", false, &top, true),
            ("a.c", false, &top, false),
            ("target", true, &top, true),
            (".git", true, &top, true),
            ("sub/a.o", false, &sub, true),
            ("sub/kept.o", false, &sub, false),
            ("sub/target", true, &sub, false),
        ] {
            assert_eq!(selection.excludes(&at(path), is_dir, patterns), expected, "{path}");
        }
        assert!(!Selection::default().excludes(&at("a.o"), false, &Patterns::default()));
    }
}
