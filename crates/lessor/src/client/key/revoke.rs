//! `lessor key revoke`: ends a key at once.

use anyhow::Result;
use wire::{ApiKeyList, ApiKeyRevoked};

use super::Admin;
use crate::client::Error;
use crate::client::show::{Output, note};

#[derive(clap::Args)]
#[command(after_help = "\
When the command ends, the key is refused. The ledger keeps who revoked it, and when. The key in the file of auth.admin_key_file \
becomes an admin key again at the next start: replace the file.

Example:
  lessor key revoke ci")]
pub(crate) struct Options {
    /// The name or the id of the key
    #[arg(value_name = "KEY")]
    key: String,
}

pub(super) async fn run(options: &Options, admin: &Admin, json: bool) -> Result<()> {
    let list: ApiKeyList = admin.get(&["keys"]).await?.parse().map_err(Error::from)?;
    let by_id = list.keys.iter().find(|key| key.key_id == options.key);
    let named = by_id.or_else(|| list.keys.iter().find(|key| key.name == options.key));
    let id = named.map_or(options.key.as_str(), |key| &key.key_id);
    let answer = admin.delete(&["keys", id]).await?;
    if json {
        return Output::new().line(answer.text());
    }
    let revoked: ApiKeyRevoked = answer.parse().map_err(Error::from)?;
    note(format_args!(
        "Revoked the key {} with the id {}.",
        named.map_or("", |key| &key.name),
        revoked.key_id
    ));
    Ok(())
}
