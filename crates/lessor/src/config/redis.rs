//! The table `redis` of the file, which is also the flags of `lessor up`: where waiting tasks are published.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use server::fault_of_redis_url;

/// The variable with the password, if it is in no file.
const PASSWORD: &str = "LESSOR_REDIS_PASSWORD";

// A doc comment would replace the help text of `lessor up`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default)]
pub(crate) struct Redis {
    /// Publish waiting tasks to streams of this Redis or Valkey; tasks are served without it while it is away
    #[arg(long = "redis-url", value_name = "redis://HOST:PORT", value_parser = parse_url)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// A file with the password of Redis; by default LESSOR_REDIS_PASSWORD, if it is set
    #[arg(long = "redis-password-file", value_name = "FILE", requires = "url")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

impl Redis {
    pub(super) fn with_every_key() -> Redis {
        Redis { url: Some(String::new()), password_file: Some(PathBuf::new()) }
    }

    pub(super) fn faults(&self) -> Vec<String> {
        let url = self.url.as_deref().and_then(fault_of_redis_url).map(|what| format!("redis.url {what}"));
        let without_url = self.password_file.is_some() && self.url.is_none();
        let file = without_url.then(|| "redis.password_file needs redis.url".to_owned());
        url.into_iter().chain(file).collect()
    }

    pub(crate) fn password(&self) -> Result<Option<SecretString>> {
        let password = match &self.password_file {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("redis.password_file: cannot read {}", file.display()))?;
                let password = text.trim_end_matches(['\r', '\n']).to_owned();
                ensure!(!password.is_empty(), "redis.password_file: {} is empty", file.display());
                Some(password)
            }
            None => std::env::var(PASSWORD).ok().filter(|password| !password.is_empty()),
        };
        Ok(password.map(SecretString::from))
    }
}

fn parse_url(text: &str) -> Result<String, String> {
    fault_of_redis_url(text).map_or(Ok(text.to_owned()), |fault| Err(format!("the URL {fault}")))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn the_password_is_in_a_file_without_its_line_end_and_never_in_the_url() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let redis = Redis { url: Some("redis://h".to_owned()), password_file: Some(file.clone()) };
        assert!(redis.password().unwrap_err().to_string().contains("redis.password_file"));
        std::fs::write(&file, "se cret\n").unwrap();
        assert_eq!(redis.password().unwrap().unwrap().expose_secret(), "se cret");
        assert_eq!(redis.faults(), [""; 0]);
        let faults = Redis { url: None, ..redis }.faults();
        assert_eq!(faults, ["redis.password_file needs redis.url"]);
        let faults = Redis { url: Some("redis://:x@h".to_owned()), password_file: None }.faults();
        assert!(faults[0].contains("LESSOR_REDIS_PASSWORD"), "{faults:?}");
    }
}
