//! Requirements of every backend, one check after the other on one fixture. Scripts use only what busybox has.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::Command;
use worker::Failure;
use worker::executors::Backend;

use super::support::{MAX_OUTPUT_BYTES, marker, runs_with, stage};
use crate::actions::support::{Stage, Tree, command, sh, strings, variable};

#[tokio::test]
async fn s3_47_the_host_does_what_every_backend_must() {
    everything(&stage(Backend::Host).await).await;
}

#[tokio::test]
async fn s3_47_the_sandbox_does_what_every_backend_must() {
    everything(&stage(Backend::Sandbox).await).await;
}

pub(super) async fn everything(stage: &Stage) {
    ends_are_told(stage).await;
    what_cannot_be_run_is_told_as_a_shell_tells_it(stage).await;
    inputs_and_outputs_and_the_environment_are_the_commands(stage).await;
    w13_a_command_that_ignores_sigterm_is_ended_in_time(stage).await;
    w10_a_gibibyte_of_output_is_too_much(stage).await;
    w14_daemons_do_not_outlive_their_command(stage).await;
    r54_inputs_that_a_command_deletes_or_changes_are_whole_for_the_next(stage).await;
    stage.is_clean().await;
}

async fn ends_are_told(stage: &Stage) {
    let result = stage.run(sh("echo out; echo err >&2; exit 7"), Tree::default()).await.unwrap();
    assert_eq!(result.exit_code, 7);
    assert_eq!((stage.stdout(&result), stage.stderr(&result)), ("out\n".to_owned(), "err\n".to_owned()));
    let killed = stage.run(sh("sh -c 'kill -KILL $$'; exit $?"), Tree::default()).await.unwrap();
    assert_eq!(killed.exit_code, 128 + 9);
    let quiet = stage.run(command(&["true"]), Tree::default()).await.unwrap();
    assert_eq!((quiet.exit_code, quiet.stdout_digest, quiet.stderr_digest), (0, None, None));
}

async fn what_cannot_be_run_is_told_as_a_shell_tells_it(stage: &Stage) {
    let inputs = || Tree::default().file(&stage.cas, "plain", "x");
    for (name, exit_code) in [("no-such-command", 127), ("./missing", 127), ("./plain", 126), ("", 127)] {
        let result = stage.run(command(&[name]), inputs()).await.unwrap();
        let said = stage.stderr(&result);
        assert_eq!(result.exit_code, exit_code, "{name}: {said}");
        assert!(said.contains(name), "{name}: {said}");
    }
}

async fn inputs_and_outputs_and_the_environment_are_the_commands(stage: &Stage) {
    let script = "cat in ../root; echo $A; echo made > out";
    let command = Command {
        working_directory: "sub".to_owned(),
        output_paths: strings(&["out"]),
        environment_variables: vec![variable("A", "1 = 2")],
        ..sh(script)
    };
    let inputs = Tree::default().file(&stage.cas, "sub/in", "in\n").file(&stage.cas, "root", "root\n");
    let result = stage.run(command, inputs).await.unwrap();
    assert_eq!(stage.stdout(&result), "in\nroot\n1 = 2\n", "{}", stage.stderr(&result));
    assert_eq!(stage.text(result.output_files[0].digest.as_ref()), "made\n");
}

async fn w13_a_command_that_ignores_sigterm_is_ended_in_time(stage: &Stage) {
    let marker = marker();
    let script = format!("trap '' TERM HUP; echo begun; sleep {marker} & while :; do sleep 1; done");
    // The start of a container counts.
    let action = stage.action(sh(&script), &Tree::default(), Some(Duration::from_secs(10)));
    let failure = stage.run_action(action).await.unwrap_err();
    assert_eq!((failure.code, failure.retryable), (Failure::TIMEOUT, false));
    assert_eq!(stage.stdout(&failure.partial.unwrap()), "begun\n");
    assert!(!runs_with(&marker));
}

async fn w10_a_gibibyte_of_output_is_too_much(stage: &Stage) {
    let result = stage.run(sh("head -c 1073741824 /dev/zero"), Tree::default()).await.unwrap();
    let stdout = result.stdout_digest.as_ref().unwrap().size_bytes as u64;
    assert_eq!((result.exit_code, stdout), (128 + 25, MAX_OUTPUT_BYTES), "what is within the limit is kept");
    assert!(stage.stderr(&result).contains("lessor: the command wrote more than"));
    let result = stage.run(sh("head -c 1000000 /dev/zero"), Tree::default()).await.unwrap();
    assert_eq!(result.stdout_digest.unwrap().size_bytes, 1_000_000);
}

async fn w14_daemons_do_not_outlive_their_command(stage: &Stage) {
    // One stays in the group, one leaves it, one leaves it and goes elsewhere with nothing open.
    let (first, second, third) = (marker(), marker(), marker());
    let script = format!(
        "sleep {first} & setsid sleep {second} & \
         setsid sh -c 'cd /; sleep {third} </dev/null >/dev/null 2>&1 & exit' & \
         while ! cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -qx {third}; do :; done; echo started"
    );
    let result = stage.run(sh(&script), Tree::default()).await.unwrap();
    assert_eq!((result.exit_code, stage.stdout(&result)), (0, "started\n".to_owned()));
    assert!(!runs_with(&first) && !runs_with(&second));
    // Who owns the third may be known only when what ran at the same time has ended.
    while runs_with(&third) {
        stage.run(command(&["true"]), Tree::default()).await.unwrap();
    }
}

async fn r54_inputs_that_a_command_deletes_or_changes_are_whole_for_the_next(stage: &Stage) {
    let inputs = || Tree::default().file(&stage.cas, "in", "content");
    let deletes = stage.run(sh("rm -f in; echo other > in; cat in"), inputs()).await.unwrap();
    assert_eq!((deletes.exit_code, stage.stdout(&deletes)), (0, "other\n".to_owned()));
    match stage.run(sh("chmod 777 in && echo other > in"), inputs()).await {
        Ok(result) => assert_ne!(result.exit_code, 0, "who may not change it is told so"),
        Err(failure) => assert_eq!(failure.code, Failure::INPUTS_CHANGED),
    }
    let next = stage.run(sh("cat in"), inputs()).await.unwrap();
    assert_eq!(stage.stdout(&next), "content");
}
