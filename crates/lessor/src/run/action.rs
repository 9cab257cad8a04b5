//! Builds the Command and the Action of a run. Equal options give equal bytes, so that a cached result is found.

use bazel_remote_apis::google::protobuf::Duration;
use blobs::Digest;
use execution::digest;
use execution::reapi::command::EnvironmentVariable;
use execution::reapi::platform::Property;
use execution::reapi::{Action, Command, Platform};
use prost::Message;

use super::inputs::Inputs;
use super::options::{Options, Plan};

/// The digests of the command and the action, which are added to the inputs.
pub(super) fn describe(
    options: &Options,
    plan: &Plan,
    input_root: &Digest,
    inputs: &mut Inputs,
) -> (Digest, Digest) {
    let platform = platform(&options.platform);
    let command = inputs.add(command(options, plan, platform.clone()).encode_to_vec());
    let action = Action {
        command_digest: Some(digest::to_proto(&command)),
        input_root_digest: Some(digest::to_proto(input_root)),
        timeout: options.timeout.map(duration),
        do_not_cache: options.no_cache,
        platform,
        ..Action::default()
    };
    (command, inputs.add(action.encode_to_vec()))
}

#[allow(deprecated, reason = "servers before version 2.2 look for the platform only there")]
fn command(options: &Options, plan: &Plan, platform: Option<Platform>) -> Command {
    let variable =
        |(name, value): &(String, String)| EnvironmentVariable { name: name.clone(), value: value.clone() };
    // The last variable of a name wins, as in a shell.
    let last = |(n, (name, _)): &(usize, &(String, String))| {
        !options.environment[n + 1..].iter().any(|(later, _)| later == name)
    };
    let variables = options.environment.iter().enumerate().filter(last);
    let mut environment_variables: Vec<_> = variables.map(|(_, pair)| variable(pair)).collect();
    environment_variables.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut output_paths: Vec<String> = plan.outputs.iter().map(|path| path.to_string()).collect();
    output_paths.sort_unstable();
    output_paths.dedup();
    let working_directory = options.working_directory.as_ref();
    Command {
        arguments: plan.command.clone(),
        environment_variables,
        output_paths,
        working_directory: working_directory.map(|path| path.to_string()).unwrap_or_default(),
        platform,
        ..Command::default()
    }
}

fn platform(pairs: &[(String, String)]) -> Option<Platform> {
    let property = |(name, value): &(String, String)| Property { name: name.clone(), value: value.clone() };
    let mut properties: Vec<_> = pairs.iter().map(property).collect();
    properties.sort_unstable_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
    properties.dedup();
    (!properties.is_empty()).then_some(Platform { properties })
}

fn duration(ms: u64) -> Duration {
    let nanos = i32::try_from(ms % 1_000 * 1_000_000).unwrap_or(0);
    Duration { seconds: i64::try_from(ms / 1_000).unwrap_or(i64::MAX), nanos }
}
