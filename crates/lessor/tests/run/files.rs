//! Inputs and outputs: what goes there is what is here, and what comes back stays where it belongs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::run;
use crate::support::Server;

fn names(directory: &Path) -> Vec<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn inputs_keep_their_modes_links_and_empty_directories() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| dir.path().join("in").join(name);
    fs::create_dir_all(at("sub/empty")).unwrap();
    fs::write(at("plain"), "content").unwrap();
    fs::write(at("sub/tool"), "#!/bin/sh\necho ran $1\n").unwrap();
    fs::set_permissions(at("sub/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../plain", at("sub/link")).unwrap();
    let script = "ls; ls sub; sub/tool it; cat sub/link; readlink sub/link; test -x plain || echo plain";
    let ran = run(&server, dir.path(), &["--input", "in"], script).ok();
    assert_eq!(ran.stdout, "plain\nsub\nempty\nlink\ntool\nran it\ncontent../plain\nplain\n");
    assert!(ran.stderr.contains("2 inputs") && ran.stderr.contains("uploaded"), "{ran:?}");
    let below =
        run(&server, dir.path(), &["-q", "--input", "in", "--working-directory", "sub"], "pwd; ls").ok();
    assert!(below.stdout.contains("/sub\n") && below.stdout.contains("tool"), "{below:?}");
    let again = run(&server, dir.path(), &["--input", "in", "--json"], "true").ok().json();
    assert_eq!(again["uploadedBlobs"], 2, "the command and the action; the inputs are there already");
}

#[test]
fn large_and_many_inputs_and_outputs_come_through() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let input = dir.path().join("in");
    fs::create_dir(&input).unwrap();
    for n in 0..500 {
        fs::write(input.join(format!("f{n}")), format!("content of {n}")).unwrap();
    }
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(input.join("large"), &large).unwrap();
    let script = "mkdir out; cp f* out/; cat large large > out/twice; cp large copy";
    run(&server, dir.path(), &["--input", "in", "--output", "out", "--output", "copy"], script).ok();
    assert_eq!(fs::read(dir.path().join("copy")).unwrap(), large);
    assert_eq!(fs::read(dir.path().join("out/twice")).unwrap(), [large.clone(), large].concat());
    assert_eq!(names(&dir.path().join("out")).len(), 501);
    assert_eq!(fs::read_to_string(dir.path().join("out/f77")).unwrap(), "content of 77");
}

#[test]
fn outputs_land_where_they_were_named_and_what_was_there_is_replaced() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir_all(dir.path().join("to/tree")).unwrap();
    fs::write(dir.path().join("to/tree/old"), "old").unwrap();
    fs::write(dir.path().join("to/tree/a"), "old").unwrap();
    let script = "mkdir -p deep tree/b/c; echo new > tree/a; echo '#!/bin/sh' > deep/x; chmod +x deep/x; \
                  ln -s a tree/l; ln -s deep/x link; echo no > unasked";
    let options = ["--output", "deep/x", "--output", "./tree/", "--output", "link", "--output-dir", "to"];
    run(&server, dir.path(), &options, script).ok();
    let to = dir.path().join("to");
    assert_eq!(names(&to), ["deep", "link", "tree"]);
    assert_eq!(names(&to.join("tree")), ["a", "b", "l", "old"]);
    assert!(to.join("tree/b/c").is_dir());
    assert_eq!(fs::read_to_string(to.join("tree/a")).unwrap(), "new\n");
    assert_ne!(fs::metadata(to.join("deep/x")).unwrap().permissions().mode() & 0o111, 0);
    assert_eq!(fs::read_link(to.join("tree/l")).unwrap(), Path::new("a"));
    assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("deep/x"));
    fs::remove_dir_all(&to).unwrap();
    let cached = run(&server, dir.path(), &options, script).ok();
    assert!(cached.stderr.contains("cached"), "{cached:?}");
    assert_eq!(names(&to.join("tree")), ["a", "b", "l"], "cached outputs come as fresh ones do");
}

#[test]
fn x9_outputs_are_never_written_through_a_link() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "mine").unwrap();
    symlink(outside.path(), dir.path().join("out")).unwrap();
    symlink(outside.path().join("file"), dir.path().join("plain")).unwrap();
    let script = "mkdir -p out; echo evil > out/file; echo evil > plain";
    run(&server, dir.path(), &["--output", "out/file"], script).fails(125, &["out/file", "not followed"]);
    run(&server, dir.path(), &["--output", "plain"], script).ok();
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "mine");
    assert_eq!(names(outside.path()), ["file"]);
    assert_eq!(fs::read_to_string(dir.path().join("plain")).unwrap(), "evil\n", "the link was replaced");
}

#[test]
fn inputs_that_cannot_be_sent_are_refused_by_name() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    run(&server, dir.path(), &["--input", "nowhere"], "true").fails(125, &["nowhere", "No such file"]);
    fs::write(dir.path().join("file"), "").unwrap();
    run(&server, dir.path(), &["--input", "file"], "true").fails(125, &["file", "not a directory"]);
    fs::create_dir(dir.path().join("in")).unwrap();
    let pipe = dir.path().join("in/pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    run(&server, dir.path(), &["--input", "in"], "true").fails(125, &["in/pipe", "a pipe"]);
}
