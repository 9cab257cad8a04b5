//! The parameters of a run: the binary, the seed of its random choices, and its length.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The short form is part of the tests; the long one is `cargo xtask chaos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Short,
    Long,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub binary: PathBuf,
    pub seed: u64,
    pub form: Form,
}

impl Plan {
    /// Short and with a new seed, unless `LESSOR_CHAOS_FORM` and `LESSOR_CHAOS_SEED` say otherwise.
    pub fn from_env(binary: impl Into<PathBuf>) -> Result<Self> {
        let form = match std::env::var("LESSOR_CHAOS_FORM").as_deref() {
            Err(_) | Ok("short") => Form::Short,
            Ok("long") => Form::Long,
            Ok(other) => bail!("LESSOR_CHAOS_FORM is `short` or `long`, not `{other}`"),
        };
        let seed = match std::env::var("LESSOR_CHAOS_SEED") {
            Err(_) => fastrand::u64(..),
            Ok(text) => text.parse().with_context(|| format!("LESSOR_CHAOS_SEED `{text}` is no number"))?,
        };
        Ok(Self { binary: binary.into(), seed, form })
    }

    /// One of two values, by form.
    pub fn pick<T>(&self, short: T, long: T) -> T {
        match self.form {
            Form::Short => short,
            Form::Long => long,
        }
    }

    /// A generator of its own for each actor, so that the choices of one do not depend on the pace of another.
    pub fn rng(&self, actor: &str) -> fastrand::Rng {
        let salt = actor.bytes().fold(self.seed, |salt, byte| salt.rotate_left(7) ^ u64::from(byte));
        fastrand::Rng::with_seed(salt)
    }
}
