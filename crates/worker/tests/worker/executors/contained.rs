//! The isolation of a sandbox, and of a separate user on the host (X11, X15).

use std::path::Path;

use bazel_remote_apis::build::bazel::remote::execution::v2::ActionResult;
use worker::Failure;
use worker::executors::{Backend, INPUT_ROOT, NETWORK_PROPERTY};

use super::support::{on, stage, stage_with};
use crate::actions::support::{Stage, Tree, command, sh};

async fn run(stage: &Stage, script: &str) -> ActionResult {
    stage.run(sh(script), Tree::default()).await.unwrap()
}

#[tokio::test]
async fn x11_a_sandbox_shows_neither_the_worker_nor_other_processes_nor_secrets() {
    let stage = stage(Backend::Sandbox).await;
    let seen = run(&stage, "pwd; ls /; echo /proc/[0-9]* | wc -w").await;
    let seen = stage.stdout(&seen);
    let mut lines = seen.lines();
    assert_eq!(lines.next(), Some(INPUT_ROOT));
    assert!(lines.next_back().unwrap().trim().parse::<u32>().unwrap() <= 6, "{seen}");
    for hidden in ["home", "root", "var", "srv", "run"] {
        assert!(!seen.lines().any(|line| line == hidden), "{seen}");
    }
    let hidden = [stage.dir.path(), Path::new("/etc/shadow"), Path::new("/var/lib")];
    for hidden in hidden {
        let result = run(&stage, &format!("cat {0} || ls {0}", hidden.display())).await;
        assert_ne!(result.exit_code, 0, "{}", hidden.display());
    }
    stage.is_clean().await;
}

#[tokio::test]
async fn x11_a_sandbox_is_read_only_but_for_its_inputs_and_tmp() {
    let stage = stage(Backend::Sandbox).await;
    for place in ["/", "/usr", "/etc", "/usr/bin", "/bin"] {
        let result = run(&stage, &format!(": > {place}/written")).await;
        assert_ne!(result.exit_code, 0, "{place}");
    }
    let result = run(&stage, ": > written && cd /tmp && : > written && ls").await;
    assert_eq!((result.exit_code, stage.stdout(&result)), (0, "written\n".to_owned()));
    assert_eq!(stage.stdout(&run(&stage, "ls /tmp").await), "", "every command has a /tmp of its own");
}

#[tokio::test]
async fn x11_a_sandbox_has_no_network_unless_its_platform_asks() {
    let stage = stage(Backend::Sandbox).await;
    let interfaces = || command(&["cat", "/proc/net/dev"]);
    let names = |text: String| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
    };
    let none = stage.run(interfaces(), Tree::default()).await.unwrap();
    assert_eq!(names(stage.stdout(&none)), ["lo"]);
    let asked = stage.run(on(interfaces(), NETWORK_PROPERTY, "host"), Tree::default()).await.unwrap();
    let own = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert_eq!(names(stage.stdout(&asked)), names(own));
    let bad = stage.run(on(interfaces(), NETWORK_PROPERTY, "some"), Tree::default()).await.unwrap_err();
    assert_eq!(bad.code, Failure::INVALID_ACTION);
    assert!(bad.message.contains("some"), "{}", bad.message);
}

#[tokio::test]
async fn x15_a_sandbox_has_no_capability_and_can_gain_none() {
    let stage = stage(Backend::Sandbox).await;
    let status =
        stage.stdout(&run(&stage, "grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status").await);
    for line in status.lines() {
        let (name, value) = line.split_once(':').unwrap();
        let expected = if name == "NoNewPrivs" { "1" } else { "0000000000000000" };
        assert_eq!(value.trim(), expected, "{line}");
    }
    assert_eq!(status.lines().count(), 5);
    assert_ne!(run(&stage, "mount -t tmpfs none /tmp").await.exit_code, 0);
}

#[tokio::test]
async fn a_write_through_a_link_that_leads_out_is_contained() {
    let outside = tempfile::tempdir().unwrap();
    let place = outside.path().to_str().unwrap();
    let as_nobody = |backend| stage_with(backend, |options| options.user = Some("nobody".to_owned()));
    let stages =
        [stage(Backend::Sandbox).await, as_nobody(Backend::Sandbox).await, as_nobody(Backend::Host).await];
    for stage in stages {
        let inputs = Tree::default().link("out", place);
        let result = stage.run(sh("echo x > out/written"), inputs).await.unwrap();
        assert_ne!(result.exit_code, 0);
        assert_eq!(outside.path().read_dir().unwrap().count(), 0);
        stage.is_clean().await;
    }
}

#[tokio::test]
async fn r54_a_user_of_its_own_cannot_change_its_inputs_and_can_write_beside_them() {
    let stage = stage_with(Backend::Host, |options| options.user = Some("nobody".to_owned())).await;
    let inputs =
        || Tree::default().file(&stage.cas, "d/in", "content").tool(&stage.cas, "tool", "#!/bin/sh\nid -un");
    let result = stage.run(command(&["./tool"]), inputs()).await.unwrap();
    assert_eq!(stage.stdout(&result), "nobody\n", "{}", stage.stderr(&result));
    let result = stage.run(sh("chmod 666 d/in || echo x > d/in"), inputs()).await.unwrap();
    assert_ne!(result.exit_code, 0);
    let result = stage.run(sh("echo x > d/new && rm d/in && cat d/new"), inputs()).await.unwrap();
    assert_eq!((result.exit_code, stage.stdout(&result)), (0, "x\n".to_owned()));
    let result = stage.run(sh("sleep 0; env; ls ../.."), inputs()).await.unwrap();
    assert_ne!(result.exit_code, 0, "the directories of others are not shown");
    stage.is_clean().await;
}
