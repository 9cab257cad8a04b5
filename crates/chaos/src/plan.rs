//! The parameters of a run: the binary, the seed of its random choices, its length, and the number of its kills.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// SIGKILLs of a scenario in the long form, beside its own fault.
const LONG_KILLS: usize = 100;

/// How often each event happens to a cluster in the long form.
const LONG_ROUNDS: usize = 3;

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
    /// Replaces every scenario's own number of kills.
    kills: Option<usize>,
}

impl Plan {
    /// Short, with a new seed and each scenario's own number of kills, unless `LESSOR_CHAOS_FORM`, `LESSOR_CHAOS_SEED`
    /// and `LESSOR_CHAOS_KILLS` say otherwise. `LESSOR_CHAOS_BINARY` names another build of the binary.
    pub fn from_env(binary: impl Into<PathBuf>) -> Result<Self> {
        let form = match std::env::var("LESSOR_CHAOS_FORM").as_deref() {
            Err(_) | Ok("short") => Form::Short,
            Ok("long") => Form::Long,
            Ok(other) => bail!("LESSOR_CHAOS_FORM is `short` or `long`, not `{other}`"),
        };
        let seed = number("LESSOR_CHAOS_SEED")?.unwrap_or_else(|| fastrand::u64(..));
        let kills = number("LESSOR_CHAOS_KILLS")?.map(usize::try_from).transpose()?;
        let binary = std::env::var_os("LESSOR_CHAOS_BINARY").map_or(binary.into(), PathBuf::from);
        Ok(Self { binary, seed, form, kills })
    }

    /// One of two values, by form.
    pub fn pick<T>(&self, short: T, long: T) -> T {
        match self.form {
            Form::Short => short,
            Form::Long => long,
        }
    }

    /// How often a scenario kills beside its own fault: as often as the plan says, otherwise this often in the short form
    /// and a hundred times in the long one.
    pub fn kills(&self, short: usize) -> usize {
        self.kills.unwrap_or(self.pick(short, LONG_KILLS))
    }

    /// How often each event happens to a cluster in the long form (`LESSOR_CHAOS_ROUNDS`).
    pub fn rounds(&self) -> Result<usize> {
        Ok(number("LESSOR_CHAOS_ROUNDS")?.map(usize::try_from).transpose()?.unwrap_or(LONG_ROUNDS))
    }

    /// The file for the measurements of a cluster (`LESSOR_CHAOS_REPORT`).
    pub fn report(&self) -> Option<String> {
        std::env::var("LESSOR_CHAOS_REPORT").ok()
    }

    /// A generator of its own for each actor, so that the choices of one do not depend on the pace of another.
    pub fn rng(&self, actor: &str) -> fastrand::Rng {
        let salt = actor.bytes().fold(self.seed, |salt, byte| salt.rotate_left(7) ^ u64::from(byte));
        fastrand::Rng::with_seed(salt)
    }
}

/// How many of the kills belong to this round, so that all rounds together have all of them.
pub(crate) fn share(kills: usize, round: usize, rounds: usize) -> usize {
    kills * (round + 1) / rounds - kills * round / rounds
}

fn number(variable: &str) -> Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("{variable} `{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(form: Form, kills: Option<usize>) -> Plan {
        Plan { binary: PathBuf::new(), seed: 1, form, kills }
    }

    #[test]
    fn a_given_number_of_kills_replaces_that_of_both_forms() {
        assert_eq!(plan(Form::Short, None).kills(3), 3);
        assert_eq!(plan(Form::Long, None).kills(3), 100);
        assert_eq!(plan(Form::Short, Some(7)).kills(3), 7);
        assert_eq!(plan(Form::Long, Some(7)).kills(3), 7);
    }

    #[test]
    fn the_rounds_share_all_kills_almost_equally() {
        for (kills, rounds) in [(100, 30), (3, 5), (0, 4), (100, 1)] {
            let shares: Vec<usize> = (0..rounds).map(|round| share(kills, round, rounds)).collect();
            assert_eq!(shares.iter().sum::<usize>(), kills, "{kills} kills in {rounds} rounds");
            let (least, most) = (kills / rounds, kills.div_ceil(rounds));
            assert!(shares.iter().all(|share| (least..=most).contains(share)), "{shares:?}");
        }
    }
}
