//! Directories that serve one attempt after the other: whatever a command does to its inputs, the next one finds exactly
//! its own tree (R54).

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use bazel_remote_apis::build::bazel::remote::execution::v2::{Command, NodeProperties};
use bazel_remote_apis::google::protobuf::UInt32Value;
use worker::Failure;

use super::support::{MemoryCas, Stage, Tree, sh, strings};

/// Everything about a tree that a command could see, but for times.
const DESCRIBE: &str = "find . -printf '%p %y %m %U:%G %l\\n' | sort; find . -type f | sort | xargs cat; \
                        python3 -c 'import os\nfor d, _, _ in os.walk(\".\"): print(d, os.listxattr(d))' | sort";

fn tree(cas: &MemoryCas) -> Tree {
    Tree::default()
        .file(cas, "a/one", "1")
        .file(cas, "a/two", "2")
        .tool(cas, "b/c/tool", "#!/bin/sh\n")
        .file(cas, "b/c/three", "3")
        .file(cas, "b/d/four", "4")
        .directory("b/void")
        .link("link", "a/one")
        .link("b/up", "../a")
}

/// The root of the one attempt whose directory is kept.
fn kept(stage: &Stage) -> PathBuf {
    let roots = stage.work().read_dir().unwrap().flatten().map(|entry| entry.path().join("root"));
    let mut kept = roots.filter(|root| root.read_dir().is_ok_and(|mut entries| entries.next().is_some()));
    let one = kept.next().expect("a directory is kept");
    assert_eq!(kept.next(), None);
    one
}

async fn described(stage: &Stage, tree: Tree) -> String {
    let result = stage.run(sh(DESCRIBE), tree).await.unwrap();
    assert_eq!(stage.stderr(&result), "");
    stage.stdout(&result)
}

#[tokio::test]
async fn a_directory_is_used_again_with_all_that_is_right_in_it() {
    let stage = Stage::new().await;
    stage.run(sh(":"), tree(&stage.cas)).await.unwrap();
    let inode = |path: &str| kept(&stage).join(path).metadata().unwrap().ino().to_string();
    let before = [inode("a"), inode("b/c"), inode("b/d")];
    let script = sh("stat -c %i a b/c b/d");
    // While a directory is there, no other can have its number.
    let again = stage.run(script.clone(), tree(&stage.cas)).await.unwrap();
    assert_eq!(stage.stdout(&again).split_whitespace().collect::<Vec<_>>(), before);
    let other = |stage: &Stage| tree(&stage.cas).file(&stage.cas, "a/five", "5");
    let changed = stage.run(script, other(&stage)).await.unwrap();
    assert_eq!(stage.stdout(&changed).split_whitespace().collect::<Vec<_>>(), before);
    let fresh = Stage::new().await;
    assert_eq!(described(&stage, other(&stage)).await, described(&fresh, other(&fresh)).await);
    // The other way round something has to go.
    assert_eq!(described(&stage, tree(&stage.cas)).await, described(&fresh, tree(&fresh.cas)).await);
    stage.is_clean().await;
}

#[tokio::test]
async fn r54_whatever_a_command_does_to_its_directories_the_next_one_finds_its_own_tree() {
    let scripts = [
        "echo new > a/new",
        "mkdir -p a/new/deep; echo new > a/new/deep/file; chmod 0 a/new",
        "rm -f a/one; echo 1 > a/one",
        "rm -f a/one; printf 1 > a/one; chmod 444 a/one",
        "cp -a a/one a/copy; mv -f a/copy a/one",
        "rm -f a/one; ln -s two a/one",
        "rm -f a/one; mkdir a/one",
        "rm -f a/one; mkfifo a/one",
        "mv a/one a/x; mv a/two a/one; mv a/x a/two",
        "ln -f a/one a/two",
        "ln a/one a/more",
        "mv a x; mv b a; mv x b",
        "mv b/c b/x; mv b/d b/c; mv b/x b/d",
        "mv b/c a/c",
        "rm -rf a",
        "rm -rf a; ln -s b a",
        "rm -rf a; ln -s /etc a",
        "rm -rf a; mkdir a; cp b/c/three a/one",
        "rm -rf a; echo file > a",
        "rm -f link; ln -s a/two link",
        "rm -f link; cp a/one link",
        "rmdir b/void",
        "mkdir b/void/x",
        "chmod 700 a",
        "chmod 777 b/c b",
        "chmod 2755 a; chmod 1755 b",
        "chmod 1777 .",
        "chown 12345:12345 a b/c",
        "chown 12345 .",
        "echo hidden > .hidden; echo x > \"$(printf 'a/\\377')\"",
        "python3 -c 'import os; os.setxattr(\"a\", \"user.x\", b\"x\")' 2>/dev/null",
        "touch -d 2001-01-01 a b b/c",
        "echo beside > ../beside; chmod 700 ..",
        "find . -mindepth 1 -delete",
    ];
    let fresh = Stage::new().await;
    let expected = described(&fresh, tree(&fresh.cas)).await;
    assert!(expected.contains("./b/c/tool f 555 "), "{expected}");
    let stage = Stage::new().await;
    for script in scripts {
        stage.run(sh(script), tree(&stage.cas)).await.unwrap();
        assert_eq!(described(&stage, tree(&stage.cas)).await, expected, "{script}");
    }
    stage.is_clean().await;
}

#[tokio::test]
async fn r54_an_input_that_is_changed_through_its_link_fails_the_attempt_and_is_right_for_the_next() {
    let scripts = [
        "chmod u+w a/one; printf X > a/one",
        "printf X | dd of=a/one conv=notrunc 2>/dev/null",
        "chmod 777 a/one",
        "mv a/one moved; chmod u+w moved; printf X > moved; chmod u-w moved",
        "rm -f a/two; chmod u+w a/one; printf X >> a/one; mv a b/a",
    ];
    let fresh = Stage::new().await;
    let expected = described(&fresh, tree(&fresh.cas)).await;
    let stage = Stage::new().await;
    for script in scripts {
        described(&stage, tree(&stage.cas)).await;
        let failure = stage.run(sh(script), tree(&stage.cas)).await.unwrap_err();
        assert_eq!(failure.code, Failure::INPUTS_CHANGED, "{script}");
        assert_eq!(described(&stage, tree(&stage.cas)).await, expected, "{script}");
    }
    stage.is_clean().await;
}

/// What reaches beyond its own directory, as a command on the host can, gains nothing either.
#[tokio::test]
async fn r54_a_directory_that_is_changed_while_it_is_kept_is_right_when_it_is_used() {
    let stage = Stage::new().await;
    let expected = described(&stage, tree(&stage.cas)).await;
    let changes: [fn(PathBuf); 3] = [
        |root| std::fs::write(root.join("b/c/planted"), "x").unwrap(),
        |root| std::fs::rename(root.join("a/two"), root.join("a/one")).unwrap(),
        |root| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(root.join("a/one"), std::fs::Permissions::from_mode(0o644)).unwrap();
            std::fs::write(root.join("a/one"), "X").unwrap();
        },
    ];
    for change in changes {
        change(kept(&stage));
        assert_eq!(described(&stage, tree(&stage.cas)).await, expected);
    }
}

#[tokio::test]
async fn outputs_are_brought_home_and_gone_before_the_next_attempt() {
    let stage = Stage::new().await;
    let command = Command {
        output_paths: strings(&["a/out", "made/dir"]),
        ..sh("ls a; mkdir made/dir; tee made/dir/f > a/out")
    };
    for _ in 0..3 {
        let result = stage.run(command.clone(), tree(&stage.cas)).await.unwrap();
        assert_eq!(stage.stdout(&result), "one\ntwo\n");
        assert_eq!((result.output_files.len(), result.output_directories.len()), (1, 1));
        assert!(!kept(&stage).join("a/out").exists() && !kept(&stage).join("made").exists());
    }
    stage.is_clean().await;
}

#[tokio::test]
async fn r51_files_with_properties_of_their_own_have_them_every_time() {
    let stage = Stage::new().await;
    let inputs = || {
        let mut inputs = tree(&stage.cas).file(&stage.cas, "own", "own");
        let unix_mode = Some(UInt32Value { value: 0o640 });
        inputs.node.files[0].node_properties =
            Some(NodeProperties { unix_mode, ..NodeProperties::default() });
        inputs
    };
    for _ in 0..3 {
        let result =
            stage.run(sh("stat -c %a own; cat own; chmod 600 own; echo x > own"), inputs()).await.unwrap();
        assert_eq!(stage.stdout(&result), "640\nown");
    }
}

#[tokio::test]
async fn attempts_with_the_same_tree_at_the_same_time_have_directories_of_their_own() {
    let stage = Stage::new().await;
    let meeting = tempfile::tempdir().unwrap();
    // Each waits for the other, so that both run.
    let script = |own: &str, other: &str| {
        let at = meeting.path().display();
        sh(&format!(
            "mkfifo {at}/{own} 2>/dev/null; mkfifo {at}/{other} 2>/dev/null; echo x > a/{own}; \
             (echo > {at}/{own}) & read -r _ < {at}/{other}; wait; ls a"
        ))
    };
    for _ in 0..3 {
        let (x, y) = tokio::join!(
            stage.run(script("x", "y"), tree(&stage.cas)),
            stage.run(script("y", "x"), tree(&stage.cas))
        );
        assert_eq!(stage.stdout(&x.unwrap()), "one\ntwo\nx\n");
        assert_eq!(stage.stdout(&y.unwrap()), "one\ntwo\ny\n");
    }
    stage.is_clean().await;
}
