//! The options that all client commands share: the server, the scope and the output format.

pub(crate) use lessor_sdk::protocol::parse_url;
use reqwest::Url;
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

    /// The tenant to act for
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME", env = "LESSOR_TENANT")]
    #[arg(default_value = DEFAULT_SCOPE_NAME, value_parser = parse_scope_name)]
    pub tenant: String,

    /// The tenant's workspace to act in
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME", env = "LESSOR_WORKSPACE")]
    #[arg(default_value = DEFAULT_SCOPE_NAME, value_parser = parse_scope_name)]
    pub workspace: String,
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
        for text in ["host:8980", "http://host:8980", "http://host:8980/"] {
            assert_eq!(parse_grpc_url(text).unwrap(), "http://host:8980", "{text}");
        }
        assert!(parse_grpc_url("https://host").is_err());
    }
}
