//! Runs every script under `tests/scenarios`: a command to a line, and below it, indented, the events and the
//! answer that must follow. `LESSOR_REWRITE=1` writes down what really follows, to be read before it is kept.

mod parse;
mod script;
mod show;

use std::path::{Path, PathBuf};

use script::Script;

#[test]
fn every_script_gives_the_trace_below_its_commands() {
    let rewrite = std::env::var_os("LESSOR_REWRITE").is_some();
    let mut wrong = Vec::new();
    let scripts = scripts();
    assert!(scripts.len() > 20, "the scripts were not found");
    for path in scripts {
        let text = std::fs::read_to_string(&path).expect("a script can be read");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let traced = trace(&name, &text);
        if traced == text {
            continue;
        }
        if rewrite {
            std::fs::write(&path, traced).expect("a script can be written");
        } else {
            wrong.push(format!("{name}:\n{}", difference(&text, &traced)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = std::fs::read_dir(folder).expect("the folder of scripts");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

/// The script with what really follows each command below it.
fn trace(name: &str, text: &str) -> String {
    let mut script = Script::new();
    let mut traced = String::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("  ") {
            continue;
        }
        traced.push_str(line);
        traced.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match script.run(line) {
            Ok(outcome) => outcome.iter().for_each(|line| traced.push_str(&format!("  {line}\n"))),
            Err(what) => panic!("{name}:{}: {what}", at + 1),
        }
    }
    script.check_replay().unwrap_or_else(|what| panic!("{name}: replay gives another state: {what}"));
    traced
}

/// Each command whose trace differs, with the lines expected (-) and found (+).
fn difference(expected: &str, found: &str) -> String {
    let (expected, found) = (blocks(expected), blocks(found));
    let mut text = String::new();
    for ((command, wanted), (_, got)) in expected.iter().zip(&found) {
        if wanted != got {
            text.push_str(&format!("{command}\n"));
            wanted.iter().filter(|line| !got.contains(line)).for_each(|l| text.push_str(&format!("- {l}\n")));
            got.iter().filter(|line| !wanted.contains(line)).for_each(|l| text.push_str(&format!("+ {l}\n")));
            if text.lines().last() == Some(command) {
                text.push_str("  the same lines in another order\n");
            }
        }
    }
    text
}

fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("  "), blocks.last_mut()) {
            (Some(outcome), Some((_, outcomes))) => outcomes.push(outcome),
            _ => blocks.push((line, Vec::new())),
        }
    }
    blocks
}

#[test]
fn a_wrong_expectation_is_shown_with_its_command() {
    let script = "at 0 submit t1\n  = created t2\n";
    let shown = difference(script, &trace("example", script));
    assert_eq!(shown, "at 0 submit t1\n- = created t2\n+ #1 TaskCreated t1 q\n+ = created t1\n");
}
