//! The work directory of the worker inside `lessor up`. It is not in the data directory: an action that walks up from its
//! working directory must not come to the server's keys.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use blobs::{Digest, DigestFunction};

/// Where earlier versions had it, below the data directory.
const OLD: &str = "worker";
/// Digits of the hash that tells the data directories of one user apart.
const NAME_DIGITS: usize = 16;

/// The named directory, or the default one of this data directory, which is the same at every start.
pub(super) fn choose(data: &Path, named: Option<PathBuf>) -> Result<PathBuf> {
    let data = data.canonicalize().with_context(|| format!("cannot find {}", data.display()))?;
    if let Some(named) = named {
        let path = resolve(&named)?;
        ensure!(
            !path.starts_with(&data),
            "the work directory {} is below the data directory, so that actions could reach the server's keys; \
             name another with --work-dir",
            named.display()
        );
        return Ok(path);
    }
    let is_elsewhere = |path: &PathBuf| resolve(path).is_ok_and(|path| !path.starts_with(&data));
    let mut created = Err(anyhow::anyhow!(
        "every default work directory is below the data directory; name one with --work-dir"
    ));
    for parent in parents().filter(is_elsewhere) {
        created = create_own(&parent).map(|()| parent);
        if created.is_ok() {
            break;
        }
    }
    let parent = created?;
    let hash = Digest::of(DigestFunction::Blake3, data.as_os_str().as_encoded_bytes()).hash.to_string();
    Ok(parent.join(&hash[..NAME_DIGITS]))
}

/// Removes the work directory of an earlier version: nothing uses it any more, and it may be large.
pub(super) fn remove_old(data: &Path) {
    let old = data.join(OLD);
    if !old.is_dir() {
        return;
    }
    tokio::task::spawn_blocking(move || match fs::remove_dir_all(&old) {
        Ok(()) => tracing::info!(path = %old.display(), "removed the work directory of an earlier version"),
        Err(error) => {
            tracing::warn!(path = %old.display(), %error, "the work directory of an earlier version is unused; remove it")
        }
    });
}

/// The path without symbolic links, also if it does not exist yet.
fn resolve(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).context("the work directory has no path")?;
    let existing = path.ancestors().find_map(|parent| Some((parent, parent.canonicalize().ok()?)));
    Ok(match existing {
        Some((parent, real)) => real.join(path.strip_prefix(parent).unwrap_or(Path::new(""))),
        None => path,
    })
}

/// The candidates: the user's cache directory, and a directory for temporary files where there is none.
fn parents() -> impl Iterator<Item = PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".cache"));
    let user = rustix::process::geteuid().as_raw();
    let temporary = std::env::temp_dir().join(format!("lessor-{user}"));
    cache.or_else(home).map(|cache| cache.join("lessor")).into_iter().chain([temporary])
}

/// Creates a directory that only this user can change. In a directory for temporary files, another user could have
/// created it first.
fn create_own(path: &Path) -> Result<()> {
    let shown = path.display();
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let about = created.and_then(|()| fs::symlink_metadata(path));
    let about =
        about.with_context(|| format!("cannot create {shown}; name a work directory with --work-dir"))?;
    ensure!(
        about.is_dir() && about.uid() == rustix::process::geteuid().as_raw(),
        "{shown} belongs to another user; name a work directory with --work-dir"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_directory_below_the_data_directory_is_refused_by_any_path() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink(&data, dir.path().join("link")).unwrap();
        for below in ["data", "data/new", "link/work/a", "data/../data/x"] {
            let error = choose(&data, Some(dir.path().join(below))).unwrap_err();
            assert!(error.to_string().contains("--work-dir"), "{below}: {error}");
        }
        for elsewhere in ["other", "data-2/work"] {
            choose(&data, Some(dir.path().join(elsewhere))).unwrap();
        }
    }
}
