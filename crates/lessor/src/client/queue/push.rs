//! The options that say where a queue's tasks are pushed to. A secret comes from a file and never from the command
//! line, where every user of the machine could read it.

use std::path::{Path, PathBuf};

use wire::PushTarget;

use crate::client::Error;
use crate::client::connection::parse_pair;

#[derive(clap::Args)]
pub(super) struct PushOptions {
    /// Push the queue's tasks to this address instead of having workers lease them
    #[arg(long, value_name = "URL", conflicts_with = "no_push")]
    push_url: Option<String>,

    /// Most tasks that the target may have at one time
    #[arg(long, value_name = "NUMBER", conflicts_with = "no_push")]
    push_concurrency: Option<u32>,

    /// A header to send with each task; may be repeated. Named anew, they replace those before
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair, conflicts_with = "no_push")]
    push_header: Vec<(String, String)>,

    /// A file with the secret that signs each task
    #[arg(long, value_name = "FILE", conflicts_with = "no_push")]
    push_secret_file: Option<PathBuf>,

    /// Push no more; workers lease the queue's tasks
    #[arg(long)]
    no_push: bool,
}

impl PushOptions {
    pub(super) fn is_given(&self) -> bool {
        self.no_push
            || self.push_url.is_some()
            || self.push_concurrency.is_some()
            || !self.push_header.is_empty()
            || self.push_secret_file.is_some()
    }

    /// What is given replaces what was there. Values that the server hides stay as they are.
    pub(super) fn over(&self, before: Option<PushTarget>) -> Result<Option<PushTarget>, Error> {
        if self.no_push {
            return Ok(None);
        }
        if !self.is_given() {
            return Ok(before);
        }
        let Some(url) = self.push_url.clone().or(before.as_ref().map(|before| before.url.clone())) else {
            return Err(Error::Usage("--push-url is needed: the queue has no push target".to_owned()));
        };
        let headers = if self.push_header.is_empty() {
            before.as_ref().map(|before| before.headers.clone()).unwrap_or_default()
        } else {
            self.push_header.iter().cloned().collect()
        };
        let secret = match &self.push_secret_file {
            Some(file) => Some(secret(file)?),
            None => before.as_ref().and_then(|before| before.secret.clone()),
        };
        let concurrency = self.push_concurrency.or(before.and_then(|before| before.concurrency));
        Ok(Some(PushTarget { url, concurrency, headers, secret }))
    }
}

/// The file's text without the line end that editors put behind it.
fn secret(file: &Path) -> Result<String, Error> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::Usage(format!("cannot read {}: {error}", file.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> PushOptions {
        PushOptions {
            push_url: None,
            push_concurrency: None,
            push_header: Vec::new(),
            push_secret_file: None,
            no_push: false,
        }
    }

    fn before() -> PushTarget {
        PushTarget {
            url: "https://a.example/".into(),
            concurrency: Some(3),
            headers: [("x-key".to_owned(), "***".to_owned())].into(),
            secret: Some("***".into()),
        }
    }

    #[test]
    fn what_is_not_given_stays() {
        let given = PushOptions { push_concurrency: Some(7), ..options() };
        let expected = PushTarget { concurrency: Some(7), ..before() };
        assert_eq!(given.over(Some(before())).unwrap(), Some(expected));
        assert_eq!(options().over(Some(before())).unwrap(), Some(before()));
        assert_eq!(PushOptions { no_push: true, ..options() }.over(Some(before())).unwrap(), None);
    }

    #[test]
    fn a_target_needs_an_address() {
        assert!(PushOptions { push_concurrency: Some(7), ..options() }.over(None).is_err());
        let given = PushOptions { push_url: Some("https://b.example/".into()), ..options() };
        assert_eq!(given.over(None).unwrap().unwrap().url, "https://b.example/");
    }

    #[test]
    fn a_secret_is_a_files_text() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        std::fs::write(&file, "sixteen bytes or more\n").unwrap();
        let given = PushOptions { push_secret_file: Some(file), ..options() };
        let after = given.over(Some(before())).unwrap().unwrap();
        assert_eq!(after.secret.as_deref(), Some("sixteen bytes or more"));
    }
}
