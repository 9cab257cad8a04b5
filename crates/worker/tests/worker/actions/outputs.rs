//! Outputs: R47 to R51.

use std::collections::HashSet;

use bazel_remote_apis::build::bazel::remote::execution::v2::command::OutputDirectoryFormat;
use bazel_remote_apis::build::bazel::remote::execution::v2::{Command, Directory, Tree as WireTree};
use blobs::Digest;
use prost::Message;
use worker::Failure;

use super::support::{FUNCTION, Stage, Tree, sh, strings, wire};

fn paths(script: &str, paths: &[&str]) -> Command {
    Command { output_paths: strings(paths), ..sh(script) }
}

#[tokio::test]
async fn r47_output_paths_are_relative_to_the_working_directory_and_their_parents_are_there() {
    let stage = Stage::new().await;
    let command = Command {
        working_directory: "sub".to_owned(),
        ..paths("echo 1 > a; echo 2 > made/for/b; ls -d made/for/d", &["a", "made/for/b", "made/for/d/e"])
    };
    let result = stage.run(command, Tree::default().directory("sub")).await.unwrap();
    assert_eq!(result.exit_code, 0, "{}", stage.stderr(&result));
    let files: Vec<_> = result
        .output_files
        .iter()
        .map(|file| (file.path.as_str(), stage.text(file.digest.as_ref())))
        .collect();
    assert_eq!(files, [("a", "1\n".to_owned()), ("made/for/b", "2\n".to_owned())]);
}

/// The result names each output as the client did.
#[tokio::test]
async fn r47_outputs_may_have_dots_that_stay_within_the_input_root() {
    let stage = Stage::new().await;
    let outputs = ["../made/a", "./b", "x/./../c", "../made/for/d"];
    let command = Command {
        working_directory: "sub".to_owned(),
        ..paths("echo a > ../made/a; echo b > b; echo c > c; echo d > ../made/for/d", &outputs)
    };
    let result = stage.run(command, Tree::default().directory("sub")).await.unwrap();
    assert_eq!(result.exit_code, 0, "{}", stage.stderr(&result));
    let files: Vec<_> = result
        .output_files
        .iter()
        .map(|file| (file.path.as_str(), stage.text(file.digest.as_ref())))
        .collect();
    let expected = [("../made/a", "a\n"), ("../made/for/d", "d\n"), ("./b", "b\n"), ("x/./../c", "c\n")];
    assert_eq!(files, expected.map(|(path, text)| (path, text.to_owned())));
}

#[tokio::test]
#[allow(deprecated)]
async fn r47_the_older_fields_make_parents_only_and_count_only_without_paths() {
    let stage = Stage::new().await;
    let old = Command {
        output_files: strings(&["f/file"]),
        output_directories: strings(&["d/dir"]),
        ..sh(
            "test -d f && test -d d && ! test -e d/dir && mkdir d/dir && echo x > d/dir/y && echo z > f/file",
        )
    };
    let result = stage.run(old.clone(), Tree::default()).await.unwrap();
    assert_eq!(result.exit_code, 0);
    assert_eq!((result.output_files.len(), result.output_directories.len()), (1, 1));
    assert_eq!(result.output_directories[0].path, "d/dir");
    let both = Command { output_paths: strings(&["p"]), ..sh("test ! -d f && echo x > p") };
    let both = Command { output_files: old.output_files, output_directories: old.output_directories, ..both };
    let result = stage.run(both, Tree::default()).await.unwrap();
    assert_eq!((result.exit_code, result.output_files.len(), result.output_directories.len()), (0, 1, 0));
}

#[tokio::test]
async fn r47_the_empty_path_is_the_whole_working_directory() {
    let stage = Stage::new().await;
    let inputs = || Tree::default().file(&stage.cas, "sub/in", "1").file(&stage.cas, "beside", "2");
    let command = Command { working_directory: "sub".to_owned(), ..paths("echo 3 > out", &[""]) };
    let result = stage.run(command, inputs()).await.unwrap();
    let tree: WireTree = stage.message(result.output_directories[0].tree_digest.as_ref());
    let names: Vec<_> = tree.root.unwrap().files.into_iter().map(|file| file.name).collect();
    assert_eq!((names, result.output_directories[0].path.as_str()), (strings(&["in", "out"]), ""));
    let result = stage.run(paths("echo 3 > out", &[""]), inputs()).await.unwrap();
    let tree: WireTree = stage.message(result.output_directories[0].tree_digest.as_ref());
    assert_eq!(tree.root.unwrap().directories[0].name, "sub");
}

#[tokio::test]
#[allow(deprecated)]
async fn r48_absent_outputs_are_left_out_and_outputs_of_the_wrong_kind_are_refused() {
    let stage = Stage::new().await;
    let result = stage.run(paths("echo x > file", &["a", "b/c", "file/d"]), Tree::default()).await;
    // `file/d` makes `file` a directory beforehand.
    assert_eq!(result.unwrap().output_files.len(), 0);
    let script = "rmdir e; echo x > e";
    let behind_a_file = stage.run(paths(script, &["e/f"]), Tree::default()).await.unwrap();
    assert_eq!(behind_a_file.output_files.len(), 0);
    let file = Command { output_files: strings(&["x"]), ..sh("mkdir x") };
    let directory = Command { output_directories: strings(&["x"]), ..sh("echo > x") };
    for command in [file, directory] {
        let failure = stage.run(command, Tree::default()).await.unwrap_err();
        assert_eq!((failure.code, failure.retryable), (Failure::INVALID_OUTPUT, false));
    }
    let any = stage.run(paths("mkdir x; echo > y", &["x", "y"]), Tree::default()).await.unwrap();
    assert_eq!((any.output_files.len(), any.output_directories.len()), (1, 1));
}

#[tokio::test]
#[allow(deprecated)]
async fn r49_links_are_told_as_links_in_the_field_that_the_client_knows() {
    let stage = Stage::new().await;
    let script = "echo x > real; mkdir dir; ln -s real f; ln -s dir d; ln -s nowhere dangling";
    let result = stage.run(paths(script, &["f", "d", "dangling"]), Tree::default()).await.unwrap();
    let links: Vec<_> =
        result.output_symlinks.iter().map(|link| (link.path.as_str(), link.target.as_str())).collect();
    assert_eq!(links, [("d", "dir"), ("dangling", "nowhere"), ("f", "real")]);
    assert!(result.output_files.is_empty() && result.output_directories.is_empty());
    let old = Command { output_files: strings(&["f"]), output_directories: strings(&["d"]), ..sh(script) };
    let result = stage.run(old, Tree::default()).await.unwrap();
    assert!(result.output_symlinks.is_empty());
    assert_eq!(result.output_file_symlinks[0].target, "real");
    assert_eq!(result.output_directory_symlinks[0].target, "dir");
}

#[tokio::test]
async fn r49_absolute_targets_are_told_only_where_they_are_allowed() {
    let stage = Stage::new().await;
    for script in ["ln -s /etc/passwd x", "ln -s ../../x x", "mkdir x; ln -s /etc/passwd x/y"] {
        let failure = stage.run(paths(script, &["x"]), Tree::default()).await.unwrap_err();
        assert_eq!((failure.code, failure.retryable), (Failure::INVALID_OUTPUT, false), "{script}");
    }
    let lenient = Stage::with(|options| options.allow_absolute_symlinks = true).await;
    let result = lenient.run(paths("ln -s /etc/passwd x", &["x"]), Tree::default()).await.unwrap();
    assert_eq!(result.output_symlinks[0].target, "/etc/passwd");
    assert!(lenient.cas.take_uploaded().is_empty(), "what it points to is nobody's business");
}

const FOREST: &str = "mkdir -p t/a/x t/b/x t/c; echo 1 > t/a/x/f; echo 1 > t/b/x/f; echo 2 > t/c/g; \
                      chmod +x t/c/g; ln -s ../a t/c/l";

#[tokio::test]
async fn r50_a_tree_is_sorted_parents_first_each_directory_once_and_the_same_every_time() {
    let stage = Stage::new().await;
    let result = stage.run(paths(FOREST, &["t"]), Tree::default()).await.unwrap();
    let told = &result.output_directories[0];
    assert!(told.is_topologically_sorted && told.root_directory_digest.is_none());
    let tree: WireTree = stage.message(told.tree_digest.as_ref());
    assert_eq!(tree.encode_to_vec(), stage.content(told.tree_digest.as_ref()));
    // Root, one for `a` and `b` alike, one for their `x`, and `c`.
    assert_eq!(tree.children.len(), 3);
    let root = tree.root.clone().unwrap();
    let names: Vec<_> = root.directories.iter().map(|below| below.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let mut announced: HashSet<_> =
        root.directories.iter().map(|below| below.digest.clone().unwrap().hash).collect();
    for child in &tree.children {
        let digest = wire(&Digest::of(FUNCTION, &child.encode_to_vec()));
        assert!(announced.contains(&digest.hash), "a parent comes first");
        announced.extend(child.directories.iter().map(|below| below.digest.clone().unwrap().hash));
    }
    let c = tree.children.iter().find(|child| !child.symlinks.is_empty()).unwrap();
    assert!(c.files[0].is_executable && c.symlinks[0].target == "../a");
    let again = stage.run(paths(FOREST, &["t"]), Tree::default()).await.unwrap();
    assert_eq!(again.output_directories, result.output_directories);
}

#[tokio::test]
async fn r50_a_directory_is_told_in_the_format_that_was_asked_for() {
    let stage = Stage::new().await;
    for format in [OutputDirectoryFormat::DirectoryOnly, OutputDirectoryFormat::TreeAndDirectory] {
        let command = Command { output_directory_format: format.into(), ..paths(FOREST, &["t"]) };
        let result = stage.run(command, Tree::default()).await.unwrap();
        let told = &result.output_directories[0];
        assert_eq!(told.tree_digest.is_some(), format == OutputDirectoryFormat::TreeAndDirectory);
        let root: Directory = stage.message(told.root_directory_digest.as_ref());
        let a: Directory = stage.message(root.directories[0].digest.as_ref());
        let x: Directory = stage.message(a.directories[0].digest.as_ref());
        assert_eq!(stage.text(x.files[0].digest.as_ref()), "1\n");
    }
    let bad = Command { output_directory_format: 99, ..paths(FOREST, &["t"]) };
    assert_eq!(stage.run(bad, Tree::default()).await.unwrap_err().code, Failure::INVALID_ACTION);
}

#[tokio::test]
async fn r51_modes_and_times_are_told_when_they_are_asked_for() {
    let stage = Stage::new().await;
    let script = "echo x > a; chmod 6750 a; touch -d @1000000000 a; echo y > b";
    let plain = stage.run(paths(script, &["a", "b"]), Tree::default()).await.unwrap();
    assert!(plain.output_files[0].is_executable && !plain.output_files[1].is_executable);
    assert_eq!(plain.output_files[0].node_properties, None);
    let asked = Command { output_node_properties: strings(&["mtime", "unix_mode"]), ..paths(script, &["a"]) };
    let result = stage.run(asked, Tree::default()).await.unwrap();
    let told = result.output_files[0].node_properties.as_ref().unwrap();
    assert_eq!(told.unix_mode.as_ref().unwrap().value, 0o750, "nothing that would change who runs it");
    assert_eq!(told.mtime.unwrap().seconds, 1_000_000_000);
    let unknown = Command { output_node_properties: strings(&["colour"]), ..sh(":") };
    assert_eq!(stage.run(unknown, Tree::default()).await.unwrap_err().code, Failure::INVALID_ACTION);
}

#[tokio::test]
async fn only_what_is_missing_is_brought_home() {
    let stage = Stage::new().await;
    let known = stage.cas.put("known\n");
    let script = "echo known > a; echo new > b; echo new > c; head -c 1000000 /dev/zero > large; : > empty";
    let command = paths(script, &["a", "b", "c", "large", "empty"]);
    let result = stage.run(command.clone(), Tree::default()).await.unwrap();
    assert_eq!(result.output_files.len(), 5);
    let mut uploaded = stage.cas.take_uploaded();
    uploaded.sort();
    let mut expected = [Digest::of(FUNCTION, b"new\n"), Digest::of(FUNCTION, &[0; 1_000_000])];
    expected.sort();
    assert_eq!(uploaded, expected);
    assert!(!uploaded.contains(&known));
    stage.run(command, Tree::default()).await.unwrap();
    assert!(stage.cas.take_uploaded().is_empty());
}

#[tokio::test]
async fn a_command_that_fails_has_outputs_too() {
    let stage = Stage::new().await;
    let result = stage.run(paths("echo x > a; exit 1", &["a"]), Tree::default()).await.unwrap();
    assert_eq!((result.exit_code, result.output_files.len()), (1, 1));
}

#[tokio::test]
async fn a_tree_too_large_for_a_batch_comes_home_too() {
    let stage = Stage::new().await;
    let script =
        "mkdir t; i=0; while [ $i -lt 4000 ]; do : > t/a-name-that-is-not-short-$i; i=$((i+1)); done";
    let result = stage.run(paths(script, &["t"]), Tree::default()).await.unwrap();
    let tree: WireTree = stage.message(result.output_directories[0].tree_digest.as_ref());
    assert_eq!(tree.root.unwrap().files.len(), 4_000);
}
