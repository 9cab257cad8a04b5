//! Containers of real engines: dockerd and Podman, with an image that is made here.

use std::path::Path;

use chaos::engine::{Engine, IMAGE};
use worker::Failure;
use worker::executors::{self, Backend, ExecutorOptions, IMAGE_PROPERTY, INPUT_ROOT, Limits};

use super::support::{on, stage_with};
use super::{common, leftovers};
use crate::actions::support::{Stage, Tree, command, sh};

fn use_engine(options: &mut ExecutorOptions, engine: &Engine) {
    use_socket(options, &engine.socket);
}

/// Podman has no right to raise limits on machines like this, so that it has to be given some.
pub(super) fn use_socket(options: &mut ExecutorOptions, socket: &Path) {
    options.docker.host = Some(format!("unix://{}", socket.display()));
    options.docker.image = Some(IMAGE.to_owned());
    options.docker.ulimits = ["nofile=1024", "nproc=1024"].map(str::to_owned).to_vec();
}

#[tokio::test]
async fn s3_70_dockerd_does_what_every_backend_must() {
    whole(&Engine::dockerd().unwrap()).await;
}

#[tokio::test]
async fn s3_70_podman_does_what_every_backend_must() {
    whole(&Engine::podman().unwrap()).await;
}

async fn whole(engine: &Engine) {
    let stage = stage_with(Backend::Docker, |options| use_engine(options, engine)).await;
    common::everything(&stage).await;
    images(&stage).await;
    x15_containers_have_no_rights_and_no_network(&stage).await;
    w14_memory_is_limited_and_told(engine).await;
    leftovers::w12_are_cleared_by_the_next_worker_and_nothing_else_is(Backend::Docker, Some(engine)).await;
    a_check_names_the_engine(engine).await;
}

async fn images(stage: &Stage) {
    let named = |image: &str| on(command(&["echo", "hello"]), IMAGE_PROPERTY, image);
    let result = stage.run(named(&format!("docker://{IMAGE}")), Tree::default()).await.unwrap();
    assert_eq!(stage.stdout(&result), "hello\n");
    let failure = stage.run(named("localhost/no-such-image:7"), Tree::default()).await.unwrap_err();
    assert_eq!((failure.code, failure.retryable), (Failure::INVALID_ACTION, false), "{failure}");
    assert!(failure.message.contains("localhost/no-such-image:7"), "{failure}");
}

async fn x15_containers_have_no_rights_and_no_network(stage: &Stage) {
    let script = "pwd; id -u; cat /proc/net/dev | grep -c :; grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status | \
                  grep -c 0000000000000000; grep NoNewPrivs /proc/self/status; : > /written";
    let result = stage.run(sh(script), Tree::default()).await.unwrap();
    assert_ne!(result.exit_code, 0, "the image is read-only");
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(stage.stdout(&result), format!("{INPUT_ROOT}\n{user}\n1\n3\nNoNewPrivs:\t1\n"));
    assert_eq!(stage.run(sh("cd /tmp; : > x"), Tree::default()).await.unwrap().exit_code, 0);
}

async fn w14_memory_is_limited_and_told(engine: &Engine) {
    let stage = stage_with(Backend::Docker, |options| {
        use_engine(options, engine);
        options.limits = Limits { cpu_cores: Some(0.5), memory_bytes: Some(64 << 20), processes: Some(24) };
    })
    .await;
    let script = "dd if=/dev/zero of=/dev/null bs=300M count=1";
    let result = stage.run(sh(script), Tree::default()).await.unwrap();
    // Not every version of Podman tells what its monitor saw.
    let is_told = stage.stderr(&result).contains("more memory");
    assert!(result.exit_code == 128 + 9 && (is_told || engine.is_podman()), "{result:?}");
    stage.is_clean().await;
}

async fn a_check_names_the_engine(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = ExecutorOptions::new(Backend::Docker, "w", dir.path());
    use_engine(&mut options, engine);
    let checks = executors::check(&options).await;
    assert!(checks[0].result.as_ref().unwrap().contains("API 1."), "{checks:?}");
    options.docker.image = Some("localhost/no-such-image:7".to_owned());
    let checks = executors::check(&options).await;
    assert!(checks[0].result.as_ref().unwrap_err().contains("no-such-image"), "{checks:?}");
    options.docker.host = Some(dir.path().join("no-socket").display().to_string());
    let checks = executors::check(&options).await;
    assert!(checks[0].result.as_ref().unwrap_err().contains("no-socket"), "{checks:?}");
}
