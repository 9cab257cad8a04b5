//! A short run of every fuzz target with the stable toolchain, so that the targets cannot rot.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuzz_targets::TARGETS;

/// Inputs of one seed: cut off, and with flipped bits, about this many each.
const MUTATIONS: usize = 48;

fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(fuzz_directory().join("corpus").join(target)).unwrap();
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn every_target_survives_its_corpus_and_inputs_close_to_its_seeds() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        let corpus = corpus(target.name);
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        for input in corpus.iter().chain(&seeds) {
            (target.run)(input);
            let step = (input.len() / MUTATIONS).max(1);
            for at in (0..input.len()).step_by(step) {
                (target.run)(&input[..at]);
                let mut flipped = input.clone();
                flipped[at] ^= 1 << (at % 8);
                (target.run)(&flipped);
            }
        }
    }
}

#[test]
fn each_target_has_a_program_for_cargo_fuzz_and_a_corpus() {
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let listed = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(fuzz_directory().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("fuzz_targets"), names);
    assert_eq!(listed("corpus"), names);
    let manifest = fs::read_to_string(fuzz_directory().join("Cargo.toml")).unwrap();
    for name in names {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        let program = fs::read_to_string(fuzz_directory().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("run(\"{name}\"")), "{name}");
    }
}
