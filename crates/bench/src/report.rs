//! Prints figures as they are measured: as text, or as one JSON object per line.

use std::fmt::Write;

use serde_json::{Map, Value};

pub(crate) struct Report {
    json: bool,
}

/// One line: the benchmark, its parameters and its figures.
pub(crate) struct Line {
    bench: &'static str,
    fields: Vec<(&'static str, Value)>,
}

impl Line {
    pub(crate) fn new(bench: &'static str) -> Line {
        Line { bench, fields: Vec::new() }
    }

    /// A parameter or a figure; the unit is part of the name.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Line {
        self.fields.push((name, value.into()));
        self
    }

    /// A figure, rounded to significant digits.
    pub(crate) fn figure(self, name: &'static str, value: f64) -> Line {
        let digits = if value.abs() >= 100.0 { 0 } else { 3 };
        let scale = 10_f64.powi(digits);
        self.with(name, (value * scale).round() / scale)
    }

    fn json(&self) -> String {
        let mut object = Map::new();
        object.insert("bench".into(), self.bench.into());
        object.extend(self.fields.iter().map(|(name, value)| ((*name).to_string(), value.clone())));
        Value::Object(object).to_string()
    }

    fn text(&self) -> String {
        let mut text = format!("{:<9}", self.bench);
        for (name, value) in &self.fields {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            // Writing to a string cannot fail.
            let _ = write!(text, "  {name}={value:<9}");
        }
        text.trim_end().to_string()
    }
}

impl Report {
    pub(crate) fn new(json: bool) -> Report {
        Report { json }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    pub(crate) fn line(&self, line: Line) {
        println!("{}", if self.json { line.json() } else { line.text() });
    }

    pub(crate) fn note(&self, text: &str) {
        if !self.json {
            eprintln!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object_with_its_parameters_and_figures() {
        let line = Line::new("cycle")
            .with("clients", 64)
            .figure("cycles_per_s", 12_345.678)
            .figure("p99_ms", 1.23456);
        assert_eq!(line.json(), r#"{"bench":"cycle","clients":64,"cycles_per_s":12346.0,"p99_ms":1.235}"#);
        assert!(line.text().contains("clients=64"));
    }
}
