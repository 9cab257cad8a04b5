//! Input trees: R12, R31, R49, R51, R54, and what is fetched how often.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::{Action, Command};
use blobs::{Digest, DigestFunction};
use prost::Message;
use worker::Failure;

use super::support::{Stage, Tree, command, sh, strings, wire};

#[tokio::test]
async fn an_input_tree_is_laid_out_with_files_tools_links_and_empty_directories() {
    let stage = Stage::new().await;
    let inputs = Tree::default()
        .file(&stage.cas, "a/b/c.txt", "content")
        .tool(&stage.cas, "a/tool", "#!/bin/sh\ncat a/b/c.txt")
        .file(&stage.cas, "empty", "")
        .link("link", "a/b")
        .link("a/dangling", "nowhere")
        .directory("a/void");
    let script =
        "a/tool && cat link/c.txt empty && readlink a/dangling && ls -A a/void && stat -c %a empty a/tool";
    let result = stage.run(sh(script), inputs).await.unwrap();
    assert_eq!(stage.stdout(&result), "contentcontentnowhere\n444\n555\n", "{}", stage.stderr(&result));
    stage.is_clean().await;
}

#[tokio::test]
async fn r31_every_missing_blob_is_named() {
    let stage = Stage::new().await;
    let inputs = Tree::default()
        .file(&stage.cas, "present", "present")
        .file(&stage.cas, "gone", "gone")
        .file(&stage.cas, "below/gone-too", "gone too")
        .file(&stage.cas, "lost/file", "never looked at")
        .file(&stage.cas, "large", &"x".repeat(1 << 20));
    let lost = Tree::default().file(&stage.cas, "file", "never looked at").store(&stage.cas);
    let action = stage.action(command(&["true"]), &inputs, None);
    let large = Digest::of(DigestFunction::Sha256, "x".repeat(1 << 20).as_bytes());
    let command = stage.cas.put(command(&["true"]).encode_to_vec());
    let gone = ["gone", "gone too"].map(|text| Digest::of(DigestFunction::Sha256, text.as_bytes()));
    let mut missing = [gone[0], gone[1], lost, large, command];
    missing.iter().for_each(|digest| stage.cas.forget(digest));
    let failure = stage.run_action(action).await.unwrap_err();
    assert_eq!((failure.code, failure.retryable), (Failure::MISSING_INPUTS, false));
    let named: Vec<String> = serde_json::from_str(&failure.message).unwrap();
    missing.sort();
    assert_eq!(named, missing.iter().map(Digest::to_string).collect::<Vec<_>>());
    stage.cas.forget(&action);
    let named: Vec<String> =
        serde_json::from_str(&stage.run_action(action).await.unwrap_err().message).unwrap();
    assert_eq!(named, [action.to_string()]);
}

#[tokio::test]
async fn what_was_fetched_once_is_not_fetched_again() {
    let stage = Stage::new().await;
    let inputs = Tree::default().file(&stage.cas, "a/b", "x").file(&stage.cas, "a/c", "y");
    let action = stage.action(command(&["true"]), &inputs, None);
    stage.run_action(action).await.unwrap();
    assert_eq!(stage.cas.take_calls(), ["read_many"; 4], "the action, what it names, a level, the files");
    stage.run_action(action).await.unwrap();
    assert_eq!(stage.cas.take_calls(), ["read_many"], "the action");
    let changed = inputs.file(&stage.cas, "d", "x");
    let action = stage.action(command(&["true"]), &changed, None);
    stage.run_action(action).await.unwrap();
    assert_eq!(stage.cas.take_calls(), ["read_many"; 2], "the action and its root, not its command");
}

/// It would lose inputs before it has all of them, however often it is tried.
#[tokio::test]
async fn inputs_that_do_not_fit_into_the_cache_are_refused_for_good_and_not_fetched() {
    let stage = Stage::with(|options| options.cache_max_bytes = 1_000).await;
    let halves =
        || Tree::default().file(&stage.cas, "a", &"a".repeat(500)).file(&stage.cas, "b", &"b".repeat(500));
    assert_eq!(stage.run(sh("cat a b | wc -c"), halves()).await.unwrap().exit_code, 0);
    let action = stage.action(sh("cat a b c"), &halves().file(&stage.cas, "c", "c"), None);
    stage.cas.take_calls();
    let failure = stage.run_action(action).await.unwrap_err();
    assert_eq!((failure.code, failure.retryable), (Failure::NOT_ENOUGH_RESOURCES, false));
    assert_eq!(failure.category, wire::grpc::ErrorCategory::Configuration);
    assert!(failure.message.contains("1001 bytes") && failure.message.contains("1000"), "{failure}");
    assert_eq!(stage.cas.take_calls(), ["read_many"; 2], "the action, its command and its root");
    stage.is_clean().await;
}

#[tokio::test]
async fn r54_a_command_cannot_damage_the_inputs_of_others() {
    let stage = Stage::new().await;
    let inputs = || Tree::default().file(&stage.cas, "input", "precious");
    // What it does to names is its own affair: they are its own links.
    let unlinks = stage.run(sh("rm -f input; echo new > input; cat input"), inputs()).await.unwrap();
    assert_eq!(stage.stdout(&unlinks), "new\n");
    let failure = stage.run(sh("chmod u+w input; echo changed > input"), inputs()).await.unwrap_err();
    assert_eq!((failure.code, failure.retryable), (Failure::INPUTS_CHANGED, true));
    assert!(failure.message.contains("\"input\""), "{}", failure.message);
    let after = stage.run(sh("cat input"), inputs()).await.unwrap();
    assert_eq!(stage.stdout(&after), "precious");
    stage.is_clean().await;
}

/// Whoever ends first finds the damage and has the content fetched anew; the other one has the damaged file still.
#[tokio::test]
async fn r54_damage_is_heard_of_by_everybody_who_had_the_input_at_that_time() {
    let stage = Stage::new().await;
    let inputs = || Tree::default().file(&stage.cas, "input", "precious");
    let [begun, go] = ["begun", "go"].map(|name| stage.dir.path().join(name));
    for pipe in [&begun, &go] {
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let waits = sh(&format!("echo > {}; read _ < {}; cat input", begun.display(), go.display()));
    let waiting = stage.run(waits, inputs());
    let meanwhile = async {
        tokio::task::spawn_blocking(|| std::fs::read(begun)).await.unwrap().unwrap();
        let failure = stage.run(sh("chmod u+w input; echo changed > input"), inputs()).await.unwrap_err();
        assert_eq!(failure.code, Failure::INPUTS_CHANGED);
        let after = stage.run(sh("cat input"), inputs()).await.unwrap();
        assert_eq!(stage.stdout(&after), "precious");
        tokio::task::spawn_blocking(|| std::fs::write(go, "\n")).await.unwrap().unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, meanwhile);
    let failure = waited.unwrap_err();
    assert_eq!((failure.code, failure.retryable), (Failure::INPUTS_CHANGED, true));
    stage.is_clean().await;
}

#[tokio::test]
async fn r12_r49_trees_that_lead_out_are_refused_before_anything_is_made() {
    let stage = Stage::new().await;
    let mut dots = Tree::default().file(&stage.cas, "a", "x");
    dots.node.files[0].name = "../../escaped".to_owned();
    let mut twice = Tree::default().file(&stage.cas, "a", "x").link("b", "/etc");
    twice.node.symlinks[0].name = "a".to_owned();
    let trees =
        [dots, twice, Tree::default().link("a", "/etc/passwd"), Tree::default().link("d/a", "../../x")];
    for tree in trees {
        assert_eq!(stage.run(sh(":"), tree).await.unwrap_err().code, Failure::INVALID_ACTION);
    }
    assert!(!stage.dir.path().join("escaped").exists() && !stage.dir.path().join("work/escaped").exists());
    let lenient = Stage::with(|options| options.allow_absolute_symlinks = true).await;
    let result = lenient.run(sh("readlink a"), Tree::default().link("a", "/etc/passwd")).await.unwrap();
    assert_eq!(lenient.stdout(&result), "/etc/passwd\n");
}

#[tokio::test]
async fn x9_an_output_is_not_made_through_a_link_among_the_inputs() {
    let stage = Stage::with(|options| options.allow_absolute_symlinks = true).await;
    let outside = tempfile::tempdir().unwrap();
    let inputs = Tree::default().link("out", outside.path().to_str().unwrap());
    let command = Command { output_paths: strings(&["out/below/file"]), ..sh(":") };
    assert_eq!(stage.run(command, inputs).await.unwrap_err().code, Failure::INVALID_ACTION);
    assert_eq!(outside.path().read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn actions_of_either_digest_function_run() {
    let stage = Stage::new().await;
    let put = |content: Vec<u8>| stage.cas.put_as(DigestFunction::Blake3, content);
    let command = put(Command { output_paths: strings(&["out"]), ..sh("echo hi | tee out") }.encode_to_vec());
    let root = put(Vec::new());
    let action = Action {
        command_digest: Some(wire(&command)),
        input_root_digest: Some(wire(&root)),
        ..Action::default()
    };
    let result = stage.run_action(put(action.encode_to_vec())).await.unwrap();
    let expected = wire(&Digest::of(DigestFunction::Blake3, b"hi\n"));
    assert_eq!(result.stdout_digest.as_ref(), Some(&expected));
    assert_eq!(result.output_files[0].digest.as_ref(), Some(&expected));
}

#[tokio::test]
async fn messages_that_are_none_are_refused() {
    let stage = Stage::new().await;
    let garbage = stage.cas.put(&b"\xff\xff\xff"[..]);
    assert_eq!(stage.run_action(garbage).await.unwrap_err().code, Failure::INVALID_ACTION);
    let no_root = Action { command_digest: Some(wire(&garbage)), ..Action::default() };
    let no_root = stage.cas.put(no_root.encode_to_vec());
    assert!(stage.run_action(no_root).await.unwrap_err().message.contains("input root"));
    let negative = Action {
        timeout: Some(bazel_remote_apis::google::protobuf::Duration { seconds: -1, nanos: 0 }),
        command_digest: Some(wire(&stage.cas.put(sh(":").encode_to_vec()))),
        input_root_digest: Some(wire(&stage.cas.put(Vec::new()))),
        ..Action::default()
    };
    let negative = stage.cas.put(negative.encode_to_vec());
    assert!(stage.run_action(negative).await.unwrap_err().message.contains("timeout"));
    let endless = stage.action(sh("exit 5"), &Tree::default(), Some(Duration::from_secs(i64::MAX as u64)));
    assert_eq!(stage.run_action(endless).await.unwrap().exit_code, 5);
}
