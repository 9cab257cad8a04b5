//! A span in seconds, kept in milliseconds. Whole seconds are written as a whole number, others with a fraction, so
//! that a client which expects whole numbers reads every setting that has them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds {
    pub ms: u64,
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.ms % 1_000 {
            0 => to.serialize_u64(self.ms / 1_000),
            _ => to.serialize_f64(self.ms as f64 / 1_000.0),
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
        let seconds = f64::deserialize(from)?;
        if seconds >= 0.0 {
            // A span beyond what fits is as long as it can be.
            Ok(Seconds { ms: (seconds * 1_000.0).round() as u64 })
        } else {
            Err(D::Error::custom("a span must not be negative"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_whole_numbers() {
        for (ms, text) in [(60_000, "60"), (33, "0.033"), (1_500, "1.5"), (0, "0")] {
            assert_eq!(serde_json::to_string(&Seconds { ms }).unwrap(), text);
            assert_eq!(serde_json::from_str::<Seconds>(text).unwrap(), Seconds { ms });
        }
        assert!(serde_json::from_str::<Seconds>("-1").is_err());
    }
}
