//! Names and paths from the network. A checked name or path cannot lead out of the directory that it is used in.

use std::fmt;

/// Longest file name on common file systems.
const MAX_NAME_BYTES: usize = 255;
const MAX_COMPONENTS: usize = 512;

/// The rule that a name or a path breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPath(&'static str);

/// Checks one path component: the name of one file within one directory, and nothing else.
pub fn component(name: &str) -> Result<&str, InvalidPath> {
    match name {
        "" => Err(InvalidPath("is empty")),
        "." | ".." => Err(InvalidPath("is . or ..")),
        _ if name.contains(['/', '\0']) => Err(InvalidPath("contains a slash or a NUL")),
        _ if name.len() > MAX_NAME_BYTES => Err(InvalidPath("is longer than 255 bytes")),
        _ => Ok(name),
    }
}

/// A path below some directory, or that directory itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(Vec<String>);

impl RelativePath {
    /// Components are separated by single slashes; the empty text is the directory itself.
    pub fn parse(text: &str) -> Result<RelativePath, InvalidPath> {
        if text.is_empty() {
            return Ok(RelativePath::default());
        }
        if text.starts_with('/') {
            return Err(InvalidPath("is absolute"));
        }
        let components = text.split('/').map(|name| component(name).map(str::to_owned));
        let components = components.collect::<Result<Vec<_>, _>>()?;
        if components.len() > MAX_COMPONENTS {
            Err(InvalidPath("is too deep"))
        } else {
            Ok(RelativePath(components))
        }
    }

    /// The path that a text means in this directory. `.` and `..` count by the text alone, and must not lead out of the root.
    pub fn resolve(&self, text: &str) -> Result<RelativePath, InvalidPath> {
        let mut path = self.0.clone();
        match text {
            "" => return Ok(self.clone()),
            _ if text.starts_with('/') => return Err(InvalidPath("is absolute")),
            _ if text.split('/').count() > MAX_COMPONENTS => return Err(InvalidPath("is too deep")),
            _ => {}
        }
        for name in text.split('/') {
            match name {
                "." => {}
                ".." => drop(path.pop().ok_or(InvalidPath("leads out of the input root"))?),
                _ => path.push(component(name)?.to_owned()),
            }
        }
        Ok(RelativePath(path))
    }

    pub fn components(&self) -> &[String] {
        &self.0
    }

    pub fn join(&self, below: &RelativePath) -> RelativePath {
        RelativePath(self.0.iter().chain(&below.0).cloned().collect())
    }

    /// The rest of the path below this directory; `None` if it is not there.
    pub fn strip_prefix(&self, directory: &RelativePath) -> Option<RelativePath> {
        self.0.strip_prefix(&directory.0[..]).map(|rest| RelativePath(rest.to_vec()))
    }

    /// The path of an entry of this directory.
    pub fn child(&self, name: &str) -> Result<RelativePath, InvalidPath> {
        let name = component(name)?.to_owned();
        Ok(RelativePath(self.0.iter().cloned().chain([name]).collect()))
    }

    /// The parent directory and the name in it; none for the directory itself.
    pub fn split_last(&self) -> Option<(RelativePath, &str)> {
        let (name, parent) = self.0.split_last()?;
        Some((RelativePath(parent.to_vec()), name))
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// Whether the target of a symbolic link, in a directory so many levels below the root, is relative and stays within
/// the root by its text alone.
pub fn stays_within(target: &str, depth: usize) -> bool {
    if target.starts_with('/') {
        return false;
    }
    let mut depth = depth;
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r12_a_component_is_one_name_and_nothing_else() {
        let bad = ["", ".", "..", "/", "a/b", "../a", "/etc", "a\0b"];
        for name in bad {
            assert!(component(name).is_err(), "{name:?}");
        }
        assert_eq!(component(&"x".repeat(256)), Err(InvalidPath("is longer than 255 bytes")));
        for name in ["a", "...", "a..b", ".hidden", "a b", "ü", "a\\b", "-"] {
            assert_eq!(component(name), Ok(name));
        }
    }

    #[test]
    fn i10_a_path_stays_below_its_directory() {
        for path in ["/a", "a//b", "a/", "../a", "a/../b", "a/./b", "a/..", "\0"] {
            assert!(RelativePath::parse(path).is_err(), "{path:?}");
        }
        let path = RelativePath::parse("a/b/c").unwrap();
        let (parent, name) = path.split_last().unwrap();
        assert_eq!((parent, name), (RelativePath::parse("a/b").unwrap(), "c"));
        assert_eq!(RelativePath::parse("").unwrap().split_last(), None);
        assert_eq!(RelativePath::parse(&["a"; 513].join("/")), Err(InvalidPath("is too deep")));
    }

    #[test]
    fn i10_dots_in_a_path_count_by_the_text_and_stay_within_the_root() {
        let directory = RelativePath::parse("a/b").unwrap();
        for (text, expected) in [
            ("", "a/b"),
            (".", "a/b"),
            ("./c", "a/b/c"),
            ("c/./d/../e", "a/b/c/e"),
            ("../c", "a/c"),
            ("../..", ""),
            ("../../c", "c"),
            ("x/../../../a", "a"),
        ] {
            assert_eq!(directory.resolve(text), RelativePath::parse(expected), "{text:?}");
        }
        for bad in ["../../..", "x/../../../../a", "/a", "a//b", "a/", "a/\0", &["a"; 513].join("/")] {
            assert!(directory.resolve(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn i12_a_link_may_climb_only_as_far_as_the_root() {
        assert!(stays_within("b", 0) && stays_within("../b", 1) && stays_within("a/../b", 0));
        for (target, depth) in [("..", 0), ("../..", 1), ("a/../..", 0), ("/a", 9), ("./../a", 0)] {
            assert!(!stays_within(target, depth), "{target}");
        }
    }
}
