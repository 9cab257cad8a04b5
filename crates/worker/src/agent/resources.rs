//! The resources that tasks request and that a worker has: CPU cores, memory and disk.

use serde::Deserialize;

use crate::Failure;

/// Zero means that a task does not request the resource, or that a worker does not limit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    pub cpu_cores: f64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
}

impl Resources {
    /// Parses a task's `resources`. Unknown fields are for others.
    pub(crate) fn parse(json: &[u8]) -> Result<Resources, Failure> {
        if json.is_empty() {
            return Ok(Resources::default());
        }
        let bad =
            |what: String| Failure::invalid_payload(format!("the task's resources are invalid: {what}"));
        let asked: Resources = serde_json::from_slice(json).map_err(|error| bad(error.to_string()))?;
        if asked.cpu_cores >= 0.0 { Ok(asked) } else { Err(bad(format!("cpuCores is {}", asked.cpu_cores))) }
    }

    pub(crate) fn plus(&self, other: &Resources) -> Resources {
        Resources {
            cpu_cores: self.cpu_cores + other.cpu_cores,
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            disk_bytes: self.disk_bytes.saturating_add(other.disk_bytes),
        }
    }

    /// Describes the first resource of which `has` is less than this. A resource that the worker does not limit is always
    /// enough.
    pub(super) fn lacking(&self, has: &Resources) -> Option<String> {
        // Sums of fractions of a core are inexact.
        const ROUNDING: f64 = 1e-6;
        let bytes = |name: &str, asked: u64, has: u64| {
            (has > 0 && asked > has).then(|| format!("{asked} bytes of {name}, but it has {has}"))
        };
        let cores = (has.cpu_cores > 0.0 && self.cpu_cores > has.cpu_cores + ROUNDING)
            .then(|| format!("{} CPU cores, but it has {}", self.cpu_cores, has.cpu_cores));
        cores
            .or_else(|| bytes("memory", self.memory_bytes, has.memory_bytes))
            .or_else(|| bytes("disk", self.disk_bytes, has.disk_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_resources_are_parsed_and_invalid_ones_refused() {
        let asked = Resources::parse(br#"{"cpuCores":1.5,"memoryBytes":7,"gpu":"a100"}"#).unwrap();
        assert_eq!(asked, Resources { cpu_cores: 1.5, memory_bytes: 7, disk_bytes: 0 });
        assert_eq!(Resources::parse(b"").unwrap(), Resources::default());
        for bad in [r#"{"cpuCores":-1}"#, r#"{"memoryBytes":-1}"#, r#"{"cpuCores":"2"}"#] {
            assert_eq!(Resources::parse(bad.as_bytes()).unwrap_err().code, Failure::INVALID_PAYLOAD);
        }
    }

    #[test]
    fn an_unlimited_resource_is_always_enough() {
        let asked = Resources { cpu_cores: 8.0, memory_bytes: 1 << 40, disk_bytes: 1 << 50 };
        assert_eq!(asked.lacking(&Resources::default()), None);
        let has = Resources { memory_bytes: 1 << 30, ..Resources::default() };
        assert!(asked.lacking(&has).unwrap().contains("memory"));
        let third = Resources { cpu_cores: 0.1, ..Resources::default() };
        let three = third.plus(&third).plus(&third);
        assert_eq!(three.lacking(&Resources { cpu_cores: 0.3, ..has }), None);
    }
}
