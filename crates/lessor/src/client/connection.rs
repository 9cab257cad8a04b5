//! The options that all client commands share: the server, the scope, the credentials and the output format.

use std::path::PathBuf;

pub(crate) use credentials::parse_url;
use credentials::{Connector, Credentials};
use lessor_sdk::protocol::Url;
use wire::DEFAULT_SCOPE_NAME;

/// After a command's own options.
const LAST: usize = 900;

#[derive(clap::Args)]
pub(crate) struct Connection {
    /// Print one JSON document instead of text for people; points in time are in RFC 3339
    #[arg(long, global = true, display_order = LAST)]
    pub json: bool,

    /// The server to talk to
    #[arg(long, global = true, help_heading = "Server", value_name = "URL", env = "LESSOR_URL")]
    #[arg(default_value = "http://127.0.0.1:8980", value_parser = parse_url)]
    pub url: Url,

    /// The tenant to act for [default: the first tenant of the API key, or `default` without a key]
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME", env = "LESSOR_TENANT")]
    #[arg(value_parser = parse_scope_name)]
    pub tenant: Option<String>,

    /// The tenant's workspace to act in
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME", env = "LESSOR_WORKSPACE")]
    #[arg(default_value = DEFAULT_SCOPE_NAME, value_parser = parse_scope_name)]
    pub workspace: String,

    #[command(flatten)]
    pub credentials: CredentialOptions,
}

// What a client trusts, and what it proves its identity with. (A doc comment would replace the help text.)
#[derive(clap::Args, Clone, Default)]
pub(crate) struct CredentialOptions {
    /// The CA that signed the server's certificate, in PEM [default: the CAs that this machine trusts]
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE", env = "LESSOR_CA_FILE")]
    pub ca_file: Option<PathBuf>,

    /// The client certificate for a server that asks for one, in PEM
    #[arg(
        long,
        global = true,
        help_heading = "Server",
        value_name = "FILE",
        env = "LESSOR_CLIENT_CERTIFICATE"
    )]
    pub client_certificate: Option<PathBuf>,

    /// The private key of --client-certificate, in PEM
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE", env = "LESSOR_CLIENT_KEY")]
    pub client_key: Option<PathBuf>,

    /// A file with the API key; without one, the key in LESSOR_API_KEY is sent
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE", env = "LESSOR_API_KEY_FILE")]
    pub api_key_file: Option<PathBuf>,
}

impl CredentialOptions {
    pub(crate) fn credentials(self) -> Result<Credentials, credentials::Error> {
        let CredentialOptions { ca_file, client_certificate, client_key, api_key_file } = self;
        Credentials { ca_file, client_certificate, client_key, api_key_file, api_key: None }.or_env()
    }
}

/// Reads what a gRPC connection to the server needs.
pub(crate) fn connector(url: &str, credentials: &Credentials) -> anyhow::Result<Connector> {
    let url = parse_url(url).map_err(anyhow::Error::msg)?;
    Ok(credentials.connector(&url)?)
}

// A command of a group, with the options that all client commands share. (A doc comment would replace the help text.)
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct CommandGroup<C: clap::Subcommand> {
    #[command(subcommand)]
    pub command: C,

    #[command(flatten)]
    pub connection: Connection,
}

/// Parses the URL of a server into the form that gRPC clients take.
pub(crate) fn parse_grpc_url(text: &str) -> Result<String, String> {
    parse_url(text).map(|url| url.as_str().trim_end_matches('/').to_owned())
}

pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_scope_name(text: &str) -> Result<String, String> {
    if text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) {
        Ok(text.to_owned())
    } else {
        Err("a name is sent as a header and must be printable ASCII".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_for_grpc_has_a_scheme_and_no_slash_at_its_end() {
        for text in ["host:8980", "http://host:8980", "http://host:8980/", "grpc://host:8980"] {
            assert_eq!(parse_grpc_url(text).unwrap(), "http://host:8980", "{text}");
        }
        assert_eq!(parse_grpc_url("grpcs://host:8980").unwrap(), "https://host:8980");
    }
}
