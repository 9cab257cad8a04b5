//! Writes the seeds of every fuzz target to `fuzz/corpus`.

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in fuzz_targets::TARGETS {
        let directory = corpus.join(target.name);
        fs::create_dir_all(&directory)?;
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            fs::write(directory.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
