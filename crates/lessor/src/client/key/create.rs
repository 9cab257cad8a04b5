//! `lessor key create`: a new key. Its secret goes to standard output, and nowhere else.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use wire::{CreateApiKey, CreatedApiKey, Role};

use super::Admin;
use crate::client::Error;
use crate::client::duration::parse_time;
use crate::client::show::{Output, note};

#[derive(clap::Args)]
#[command(after_help = "\
The key is shown once. Holders send it as `Authorization: Bearer KEY`, or as the password of HTTP basic.

Examples:
  lessor key create --name ci --tenant default --role submitter --role reader
  lessor key create --name farm --tenant default --role worker --queue exec --worker-prefix farm- --expires 90d")]
pub(crate) struct Options {
    /// The name of the key, unique among the keys that live
    #[arg(long, value_name = "NAME")]
    name: String,

    /// A tenant that the key may act for; may be repeated. A request that names none gets the first. The role admin has all
    #[arg(long, value_name = "TENANT")]
    tenant: Vec<String>,

    /// A role of the key; may be repeated
    #[arg(long, value_name = "ROLE", required = true, value_parser = roles())]
    role: Vec<Role>,

    /// A queue that the key may submit to, lease from and configure; may be repeated [default: all]
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,

    /// How the names of its workers must begin
    #[arg(long, value_name = "PREFIX")]
    worker_prefix: Option<String>,

    /// A property that its workers may announce, as in os=linux; may be repeated, also for one name; a value may end with `*`
    /// [default: all]
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_property)]
    property: Vec<(String, String)>,

    /// When the key ends: a time, or a duration from now, as in 90d [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    expires: Option<Timestamp>,
}

pub(super) async fn run(options: &Options, admin: &Admin, json: bool) -> Result<()> {
    let mut properties: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &options.property {
        properties.entry(name.clone()).or_default().push(value.clone());
    }
    let request = CreateApiKey {
        name: options.name.clone(),
        roles: options.role.clone(),
        tenants: options.tenant.clone(),
        queues: options.queue.clone(),
        worker_prefix: options.worker_prefix.clone(),
        properties,
        expires_at: options.expires,
    };
    let answer = admin.post(&["keys"], &request).await?;
    if json {
        return Output::new().line(answer.text());
    }
    let created: CreatedApiKey = answer.parse().map_err(Error::from)?;
    note(format_args!(
        "Created the key {} with the id {}. It is shown this once:",
        created.name, created.key_id
    ));
    Output::new().line(created.key)
}

fn parse_property(text: &str) -> Result<(String, String), String> {
    let property = text.split_once('=').filter(|(name, _)| !name.is_empty());
    property
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "a property is NAME=VALUE, as in os=linux".to_owned())
}

fn roles() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::name)).try_map(|name| {
        let role = Role::ALL.into_iter().find(|role| role.name() == name);
        role.ok_or_else(|| Error::Usage(format!("{name} is no role")))
    })
}
