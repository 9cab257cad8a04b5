//! Which files are inputs, and the form of the command line without `--`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::run;
use crate::support::{Ran, Server};

fn run_words(server: &Server, at: &Path, words: &str) -> Ran {
    let mut command = server.command(&["run"]);
    Ran::from(command.args(words.split(' ')).current_dir(at).output().unwrap())
}

fn script(at: &Path, text: &str) {
    fs::write(at, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The document's command line, word for word.
#[test]
fn s3_52_the_documents_command_line_works_unchanged() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("input"), "content").unwrap();
    let first = run_words(&server, dir.path(), "echo hello --input . --output ./outputs").ok();
    assert_eq!(first.stdout, "hello\n");
    assert_eq!(fs::read_dir(dir.path().join("outputs")).unwrap().count(), 0, "the command made no file");
    let second = run_words(&server, dir.path(), "--input . echo --output ./outputs hello").ok();
    assert_eq!(second.stdout, "hello\n");
    assert!(second.stderr.contains("cached"), "{second:?}");
}

#[test]
fn s3_52_the_output_directory_receives_what_the_command_made_and_replaced() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("in/sub")).unwrap();
    for name in ["kept", "replaced", "sub/kept"] {
        fs::write(at("in").join(name), "old").unwrap();
    }
    script(
        &at("in/make"),
        "rm replaced; echo new > replaced; echo new > sub/new; mkdir -p out/deep; echo o > out/deep/o; ln -s kept link",
    );
    let words = "./make --input in --output out";
    let first = run_words(&server, dir.path(), words).ok();
    let out = at("out");
    for (name, content) in [("replaced", "new\n"), ("sub/new", "new\n"), ("deep/o", "o\n")] {
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), content, "{name}: {first:?}");
    }
    assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("kept"));
    for absent in ["kept", "make", "sub/kept", "out"] {
        assert!(!out.join(absent).exists(), "{absent} is no result");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let absolute = format!("./make --input in --output {}", elsewhere.path().display());
    run_words(&server, dir.path(), &absolute).ok();
    assert!(elsewhere.path().join("out/deep/o").exists(), "only the named directory is the place of results");
}

/// The file that the first run wrote was an input of the second, which therefore was another command.
#[test]
fn declared_outputs_are_not_inputs_so_that_the_second_run_is_cached() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("in"), "content").unwrap();
    for (options, made) in [
        (&["--input", ".", "--output", "made"][..], "made"),
        (&["--input", ".", "--output", "made", "--output-dir", "to"], "to/made"),
    ] {
        let first = run(&server, dir.path(), options, "ls > made").ok();
        assert_eq!(fs::read_to_string(dir.path().join(made)).unwrap(), "in\nmade\n");
        assert!(!first.stderr.contains("cached"), "{first:?}");
        let second = run(&server, dir.path(), options, "ls > made").ok();
        assert!(second.stderr.contains("cached"), "{second:?}");
        let _ = fs::remove_file(dir.path().join("made"));
        fs::write(dir.path().join("in"), "other content").unwrap();
    }
}

#[test]
fn patterns_and_gitignore_files_leave_inputs_out() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("in/target/deep")).unwrap();
    fs::create_dir_all(at("in/.git")).unwrap();
    fs::create_dir_all(at("in/sub")).unwrap();
    for name in ["a.c", "a.o", "sub/b.o", "sub/b.c", "target/deep/x", ".git/HEAD"] {
        fs::write(at("in").join(name), name).unwrap();
    }
    let find = "find . -type f | sort | tr '\\n' ' '";
    let found = |options: &[&str]| {
        run(&server, dir.path(), &[&["--input", "in"], options].concat(), find).ok().stdout
    };
    assert_eq!(
        found(&["--exclude", "*.o", "--exclude", "/target", "--exclude", ".git/"]),
        "./a.c ./sub/b.c "
    );
    fs::write(at("in/.gitignore"), "*.o\n/target/\n").unwrap();
    fs::write(at("in/sub/.gitignore"), "!b.o\n").unwrap();
    assert_eq!(found(&["--gitignore"]), "./.gitignore ./a.c ./sub/.gitignore ./sub/b.c ./sub/b.o ");
    assert!(found(&[]).contains("./target/deep/x"), "nothing is left out unasked");
}

#[test]
fn the_form_without_dashes_is_checked() {
    for (words, expected) in [
        (&["true", "--output", "a", "--output", "b"][..], "one directory"),
        (&["true", "--output", "a", "--output-dir", "b"], "one directory"),
        (&["true", "-x"], "-- -x"),
        (&["--exclude", "*.o", "true"], "--input"),
    ] {
        let ran = Ran::from(crate::support::lessor(&["run"]).args(words).output().unwrap());
        ran.fails(2, &[expected]);
    }
}
