//! `lessor key list`: the keys that live.

use anyhow::Result;
use jiff::Timestamp;
use wire::{ApiKey, ApiKeyList};

use super::Admin;
use crate::client::Error;
use crate::client::show::{Cell, Output, Table, time};

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  lessor key list --json | jq -r '.keys[] | select(.expiresAt) | [.name, .expiresAt] | @tsv'")]
pub(crate) struct Options {}

pub(super) async fn run(admin: &Admin, json: bool) -> Result<()> {
    let answer = admin.get(&["keys"]).await?;
    if json {
        return Output::new().line(answer.text());
    }
    Output::new().print(table(&answer.parse().map_err(Error::from)?))
}

fn table(list: &ApiKeyList) -> String {
    if list.keys.is_empty() {
        return "No keys.\n".to_owned();
    }
    let now = Timestamp::now();
    let mut table =
        Table::new(&["NAME", "ID", "ROLES", "TENANTS", "QUEUES", "WORKERS", "EXPIRES", "CREATED", "BY"]);
    for key in &list.keys {
        let roles = key.roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(",");
        table.row([
            Cell::text(&key.name),
            Cell::text(&key.key_id),
            Cell::text(roles),
            Cell::text(names(&key.tenants)),
            Cell::text(names(&key.queues)),
            Cell::text(workers(key)),
            Cell::text(expiry(key, now)),
            Cell::text(time::relative(key.created_at, now)),
            Cell::text(&key.created_by),
        ]);
    }
    table.to_string()
}

fn names(names: &[String]) -> String {
    if names.is_empty() { "all".to_owned() } else { names.join(",") }
}

/// The names of its workers, and what they may announce.
fn workers(key: &ApiKey) -> String {
    let names = key.worker_prefix.as_ref().map_or("all".to_owned(), |prefix| format!("{prefix}*"));
    let properties = key.properties.iter().map(|(name, values)| format!(" {name}={}", values.join("|")));
    std::iter::once(names).chain(properties).collect()
}

fn expiry(key: &ApiKey, now: Timestamp) -> String {
    match key.expires_at {
        None => "never".to_owned(),
        Some(at) if at <= now => "expired".to_owned(),
        Some(at) => time::relative(at, now),
    }
}
