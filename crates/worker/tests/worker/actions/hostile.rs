//! Commands that mean harm: nothing outside their directory is read for them, and the worker goes on.

use std::os::unix::fs::{PermissionsExt, symlink};

use bazel_remote_apis::build::bazel::remote::execution::v2::Command;
use worker::Failure;

use super::support::{Stage, Tree, sh, strings, variable};

/// A secret outside the input root, and a script that knows its place.
struct Secret {
    dir: tempfile::TempDir,
}

impl Secret {
    fn new() -> Secret {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        Secret { dir }
    }

    fn script(&self, script: &str, paths: &[&str]) -> Command {
        let place = variable("PLACE", self.dir.path().to_str().unwrap());
        Command { environment_variables: vec![place], output_paths: strings(paths), ..sh(script) }
    }
}

#[tokio::test]
async fn x10_links_that_lead_out_bring_nothing_home() {
    let stage = Stage::with(|options| options.allow_absolute_symlinks = true).await;
    let secret = Secret::new();
    // The output itself, a directory on its way, and one within an output directory.
    let cases = [
        ("ln -s $PLACE/secret out", "out"),
        ("rmdir d; ln -s $PLACE d", "d/secret"),
        ("mkdir out; ln -s $PLACE out/d", "out"),
        ("mkdir out; ln -s $PLACE/secret out/f", "out"),
    ];
    for (script, path) in cases {
        let result = stage.run(secret.script(script, &[path]), Tree::default()).await;
        match result {
            Ok(result) => assert!(result.output_files.is_empty(), "{script}"),
            Err(failure) => {
                assert_eq!(failure.code, Failure::INVALID_OUTPUT, "{script}");
                assert!(failure.message.contains("symbolic link"), "{}", failure.message);
            }
        }
    }
    let stolen = blobs::Digest::of(super::support::FUNCTION, b"secret");
    assert!(stage.cas.get(&stolen).is_none());
    assert_eq!(std::fs::read(secret.dir.path().join("secret")).unwrap(), b"secret");
    stage.is_clean().await;
}

#[tokio::test]
async fn x10_an_output_that_is_swapped_for_a_link_while_it_is_read_never_brings_another_file_home() {
    let stage = Stage::with(|options| options.allow_absolute_symlinks = true).await;
    let secret = Secret::new();
    // It leaves its process group, so that it lives on while the outputs are read.
    let swap = "import os, sys, time\n\
                os.setsid()\n\
                end = time.time() + 1\n\
                while time.time() < end:\n\
                \x20   try:\n\
                \x20       open('out', 'w').write('fine'); os.remove('out')\n\
                \x20       os.symlink(sys.argv[1] + '/secret', 'out'); os.remove('out')\n\
                \x20   except OSError: break\n";
    let inputs = || Tree::default().file(&stage.cas, "swap.py", swap);
    let script = "python3 swap.py $PLACE >/dev/null 2>&1 & echo $!; echo fine > out";
    let stolen = blobs::Digest::of(super::support::FUNCTION, b"secret");
    for _ in 0..8 {
        // Whatever it finds, it finds it in one piece: a file, a link, nothing, or a complaint.
        if let Err(failure) = stage.run(secret.script(script, &["out"]), inputs()).await {
            assert!([Failure::INVALID_OUTPUT, Failure::WORKER_BROKEN].contains(&failure.code), "{failure}");
        }
        assert!(stage.cas.get(&stolen).is_none());
    }
    stage.is_clean().await;
}

#[tokio::test]
async fn x10_special_files_are_refused_and_nobody_waits_for_them() {
    let stage = Stage::new().await;
    let scripts = ["mkfifo out", "mkdir out; mkfifo out/pipe"];
    for script in scripts {
        let command = Command { output_paths: strings(&["out"]), ..sh(script) };
        let failure = stage.run(command, Tree::default()).await.unwrap_err();
        assert_eq!(failure.code, Failure::INVALID_OUTPUT, "{script}");
    }
    stage.is_clean().await;
}

#[tokio::test]
async fn a_name_that_is_not_text_is_refused() {
    let stage = Stage::new().await;
    let command = Command { output_paths: strings(&["out"]), ..sh("mkdir out; : > out/$(printf '\\377')") };
    assert_eq!(stage.run(command, Tree::default()).await.unwrap_err().code, Failure::INVALID_OUTPUT);
}

#[tokio::test]
async fn what_a_command_makes_hard_to_remove_is_removed() {
    let stage = Stage::new().await;
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("kept"), "").unwrap();
    std::fs::set_permissions(outside.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink(outside.path(), stage.dir.path().join("link")).unwrap();
    let script = format!(
        "mkdir -p a/b/c; : > a/b/c/d; ln -s {0} a/b/link; chmod 0 a/b/c; chmod 500 a/b a; chmod 0 .",
        outside.path().display()
    );
    let result = stage.run(sh(&script), Tree::default()).await.unwrap();
    assert_eq!(result.exit_code, 0, "{}", stage.stderr(&result));
    stage.is_clean().await;
    assert!(outside.path().join("kept").exists());
}

#[tokio::test]
async fn a_command_that_removes_its_own_directory_ends_like_any_other() {
    let stage = Stage::new().await;
    let command = Command { output_paths: strings(&["out"]), ..sh("rm -rf \"$PWD\"; exit 4") };
    let ended = stage.run(command, Tree::default()).await;
    match ended {
        Ok(result) => assert_eq!((result.exit_code, result.output_files.len()), (4, 0)),
        Err(failure) => assert_eq!(failure.code, Failure::WORKER_BROKEN),
    }
    stage.is_clean().await;
    assert_eq!(stage.run(sh("exit 3"), Tree::default()).await.unwrap().exit_code, 3, "the worker goes on");
}
