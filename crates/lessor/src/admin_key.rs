//! The first admin keys, which no other key can create: `lessor init`, and the file of `auth.admin_key_file`.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use authority::command::{CreateKey, CreateKeyAnswer, RevokeKey};
use authority::{ApiKey, Role};
use coordinator::Handle;
use server::NewKey;

/// The name of the key from the file.
const FILE_KEY: &str = "admin-key-file";
/// Only the owner may read a key.
const KEY_FILE_MODE: u32 = 0o600;

pub(crate) fn generate() -> Result<NewKey> {
    NewKey::generate().map_err(|error| anyhow::anyhow!("the system has no random numbers: {error}"))
}

/// Records an admin key.
pub(crate) async fn create(handle: &Handle, name: &str, made: &NewKey, created_by: &str) -> Result<()> {
    let key = ApiKey {
        id: Arc::from(&*made.id),
        name: Arc::from(name),
        tenants: Vec::new(),
        roles: vec![Role::Admin],
        queues: Vec::new(),
        worker_prefix: None,
        expires_at: None,
        secret_hash: made.hash,
        created_by: Arc::from(created_by),
        properties: Vec::new(),
    };
    match handle.create_key(CreateKey { key: Arc::new(key), by: None }).await? {
        CreateKeyAnswer::Created => Ok(()),
        CreateKeyAnswer::NameTaken => {
            bail!("there is a key named {name} already; choose another name with --name, or revoke that key")
        }
        CreateKeyAnswer::TooMany => bail!("there are as many keys as there may be; revoke some"),
        CreateKeyAnswer::Invalid(what) => bail!("the key is not valid: {what}"),
    }
}

/// Makes the key of the file an admin key. A file that does not exist gets a new key; a key that replaces another one in the
/// file revokes it.
pub(crate) async fn from_file(handle: &Handle, path: &Path) -> Result<()> {
    let shown = path.display();
    let made = match std::fs::read_to_string(path) {
        Ok(text) => NewKey::parse(text.trim()).with_context(|| {
            format!("{shown} holds no API key (lsk_…); remove the file to get a new key in it")
        })?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let made = generate()?;
            write(path, &made)?;
            tracing::info!(path = %shown, key_id = made.id, "a new admin key is in the file");
            made
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    warn_if_readable(path);
    let keys = handle.keys().await?;
    if keys.iter().any(|stored| *stored.key.id == *made.id && stored.key.secret_hash == made.hash) {
        return Ok(());
    }
    if keys.iter().any(|stored| *stored.key.id == *made.id) {
        bail!("the key in {shown} has the id of another key; remove the file to get a new key in it");
    }
    tracing::warn!(path = %shown, key_id = made.id, "the key in the file is an admin key from now on");
    if let Some(earlier) = keys.iter().find(|stored| *stored.key.name == *FILE_KEY) {
        let command = RevokeKey { key_id: earlier.key.id.clone(), revoked_by: Arc::from(FILE_KEY), by: None };
        handle.revoke_key(command).await?;
    }
    create(handle, FILE_KEY, &made, "auth.admin_key_file").await
}

/// Whoever reads the file is an admin.
fn warn_if_readable(path: &Path) {
    let mode = std::fs::metadata(path).map(|file| file.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o077 != 0) {
        tracing::warn!(path = %path.display(), "others can read the file with the admin key; `chmod 600` it");
    }
}

/// Writes a key to a new file that only its owner can read.
pub(crate) fn write(path: &Path, made: &NewKey) -> Result<()> {
    let context = || format!("cannot write the key to {}", path.display());
    let mut options = std::fs::OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(KEY_FILE_MODE).open(path).with_context(context)?;
    writeln!(file, "{}", made.text.expose()).and_then(|()| file.sync_all()).with_context(context)
}
