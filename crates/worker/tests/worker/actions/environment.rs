//! The environment of a command, and the report of its end: R45, R46, R52, R53.

use bazel_remote_apis::build::bazel::remote::execution::v2::{Command, NodeProperties};
use bazel_remote_apis::google::protobuf::{Timestamp, UInt32Value};
use worker::Failure;

use super::support::{Stage, Tree, command, sh, strings, variable};

#[tokio::test]
async fn r45_the_program_is_absolute_or_in_the_working_directory_or_in_the_commands_path() {
    let stage = Stage::new().await;
    let tool = |content: &str| {
        Tree::default().tool(&stage.cas, "sub/bin/tool", content).tool(
            &stage.cas,
            "bin/tool",
            "#!/bin/sh\nexit 9",
        )
    };
    let inputs = || tool("#!/bin/sh\necho found $0");
    let in_sub = |arguments: &[&str], path: &str| Command {
        working_directory: "sub".to_owned(),
        environment_variables: vec![variable("PATH", path)],
        ..command(arguments)
    };
    let relative = stage.run(in_sub(&["bin/tool"], "/bin"), inputs()).await.unwrap();
    assert_eq!((relative.exit_code, stage.stdout(&relative).starts_with("found")), (0, true));
    let by_path = stage.run(in_sub(&["tool"], "/nowhere:bin:/bin"), inputs()).await.unwrap();
    assert!(stage.stdout(&by_path).ends_with("bin/tool\n"), "{}", stage.stdout(&by_path));
    let absolute = stage.run(in_sub(&["/bin/echo", "hello"], ""), inputs()).await.unwrap();
    assert_eq!(stage.stdout(&absolute), "hello\n");
    let unknown = stage.run(in_sub(&["tool"], "/nowhere"), inputs()).await.unwrap();
    assert_eq!((unknown.exit_code, stage.stderr(&unknown)), (127, "tool: command not found\n".to_owned()));
    stage.is_clean().await;
}

#[tokio::test]
async fn a_command_that_cannot_be_started_ends_as_a_shell_would_tell_it() {
    let stage = Stage::new().await;
    let inputs = || {
        Tree::default()
            .file(&stage.cas, "plain", "x")
            .tool(&stage.cas, "no-interpreter", "#!/no/such/interpreter\n")
            .tool(&stage.cas, "garbage", "\u{1}\u{2}garbage")
    };
    let cases =
        [("./missing", 127), ("./plain", 126), ("./no-interpreter", 127), ("./garbage", 126), ("./", 126)];
    for (program, exit_code) in cases {
        let result = stage.run(command(&[program]), inputs()).await.unwrap();
        assert_eq!(result.exit_code, exit_code, "{program}: {}", stage.stderr(&result));
        assert!(stage.stderr(&result).contains(program), "{program}");
    }
}

#[tokio::test]
async fn r46_a_command_sees_its_own_environment_over_the_allowed_one_and_nothing_else() {
    let stage = Stage::new().await;
    let environment_variables = vec![variable("A", "1 = 2"), variable("PATH", "/bin:/usr/bin")];
    let env = Command { environment_variables, ..command(&["env"]) };
    let result = stage.run(env, Tree::default()).await.unwrap();
    let mut lines: Vec<String> = stage.stdout(&result).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["A=1 = 2", "PATH=/bin:/usr/bin"]);
    let inherited = stage.run(command(&["env"]), Tree::default()).await.unwrap();
    assert_eq!(stage.stdout(&inherited), format!("PATH={}\n", std::env::var("PATH").unwrap()));
}

#[tokio::test]
async fn r46_the_working_directory_must_be_in_the_inputs() {
    let stage = Stage::new().await;
    let pwd = |directory: &str| Command { working_directory: directory.to_owned(), ..sh("pwd; ls") };
    let inputs = || Tree::default().file(&stage.cas, "a/b/file", "x").link("link", "a/b");
    let result = stage.run(pwd("a/b"), inputs()).await.unwrap();
    assert!(stage.stdout(&result).ends_with("/a/b\nfile\n"), "{}", stage.stdout(&result));
    for bad in ["missing", "a/b/file", "link", "../x", "/tmp"] {
        let failure = stage.run(pwd(bad), inputs()).await.unwrap_err();
        assert_eq!((failure.code, failure.retryable), (Failure::INVALID_ACTION, false), "{bad}");
    }
    // Not even when an output's directory would make it.
    let made = Command { output_paths: strings(&["x/out"]), ..pwd("missing") };
    assert_eq!(stage.run(made, inputs()).await.unwrap_err().code, Failure::INVALID_ACTION);
    stage.is_clean().await;
}

#[tokio::test]
async fn r53_exit_codes_signals_and_both_outputs_are_told() {
    let stage = Stage::new().await;
    let result = stage.run(sh("echo out; echo err >&2; exit 3"), Tree::default()).await.unwrap();
    assert_eq!(result.exit_code, 3);
    assert_eq!((stage.stdout(&result), stage.stderr(&result)), ("out\n".to_owned(), "err\n".to_owned()));
    assert!(result.stdout_raw.is_empty(), "inline only on request");
    let killed = stage.run(sh("kill -KILL $$"), Tree::default()).await.unwrap();
    assert_eq!(killed.exit_code, 128 + 9);
    let quiet = stage.run(sh(":"), Tree::default()).await.unwrap();
    assert_eq!((quiet.exit_code, quiet.stdout_digest, quiet.stderr_digest), (0, None, None));
}

#[tokio::test]
async fn r52_every_step_has_its_time_in_order() {
    let stage = Stage::new().await;
    let result = stage.run(sh("echo x"), Tree::default().file(&stage.cas, "a", "x")).await.unwrap();
    let told = result.execution_metadata.unwrap();
    assert_eq!(told.worker, "w");
    let times = [
        told.worker_start_timestamp,
        told.input_fetch_start_timestamp,
        told.input_fetch_completed_timestamp,
        told.execution_start_timestamp,
        told.execution_completed_timestamp,
        told.output_upload_start_timestamp,
        told.output_upload_completed_timestamp,
        told.worker_completed_timestamp,
    ];
    let times: Vec<_> = times.into_iter().map(|time| time.unwrap()).map(|t| (t.seconds, t.nanos)).collect();
    assert!(times.is_sorted(), "{times:?}");
    let ran = told.virtual_execution_duration.unwrap();
    assert!(ran.seconds > 0 || ran.nanos > 0);
}

#[tokio::test]
async fn r51_an_input_with_a_mode_and_a_time_of_its_own_has_them() {
    let stage = Stage::new().await;
    let mut inputs = Tree::default().tool(&stage.cas, "a", "x").file(&stage.cas, "b", "x");
    inputs.node.files[0].node_properties = Some(NodeProperties {
        mtime: Some(Timestamp { seconds: 1_000_000_000, nanos: 0 }),
        unix_mode: Some(UInt32Value { value: 0o4751 }),
        ..NodeProperties::default()
    });
    let result = stage.run(sh("stat -c '%a %Y' a; stat -c '%a' b"), inputs).await.unwrap();
    assert_eq!(stage.stdout(&result), "751 1000000000\n444\n", "nothing that would change who runs it");
}

#[tokio::test]
async fn a_command_that_cannot_be_passed_on_is_refused() {
    let stage = Stage::new().await;
    let with =
        |name: &str, value: &str| Command { environment_variables: vec![variable(name, value)], ..sh(":") };
    for bad in [command(&[]), command(&["a\0b"]), with("", "x"), with("a=b", "x"), with("a", "x\0")] {
        assert_eq!(stage.run(bad, Tree::default()).await.unwrap_err().code, Failure::INVALID_ACTION);
    }
    let empty = stage.run(command(&[""]), Tree::default()).await.unwrap();
    assert_eq!(empty.exit_code, 127);
}
