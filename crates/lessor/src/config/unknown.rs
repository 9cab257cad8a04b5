//! Keys that nobody reads: a misspelt key must not be taken for a default.

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// Below this likeness a suggestion would be a guess.
const LIKE: f64 = 0.75;

/// A line for each key of the text that is not one of the known, with the nearest that is. A known table that is empty
/// takes any key.
pub fn keys(text: &str, known: &impl serde::Serialize) -> Result<Vec<String>, toml::de::Error> {
    let known = Table::try_from(known).unwrap_or_default();
    let document = DeTable::parse(text)?;
    let mut search = Search { text, every: Vec::new(), found: Vec::new() };
    list(&known, "", &mut search.every);
    search.look(document.get_ref(), &known, "");
    Ok(search.found)
}

/// The dotted names of a table's values.
fn list(table: &Table, path: &str, into: &mut Vec<String>) {
    for (key, value) in table {
        let name = join(path, key);
        match value {
            Value::Table(inner) => list(inner, &name, into),
            _ => into.push(name),
        }
    }
}

struct Search<'a> {
    text: &'a str,
    every: Vec<String>,
    found: Vec<String>,
}

impl Search<'_> {
    fn look(&mut self, table: &DeTable<'_>, known: &Table, path: &str) {
        for (key, value) in table.iter() {
            let name = join(path, key.get_ref());
            match (known.get(key.get_ref().as_ref()), value.get_ref()) {
                (Some(Value::Table(known)), DeValue::Table(inner)) if !known.is_empty() => {
                    self.look(inner, known, &name);
                }
                (Some(_), _) => {}
                (None, _) => {
                    let line = self.text[..key.span().start].matches('\n').count() + 1;
                    self.found
                        .push(format!("line {line}: unknown key {name}{}", self.hint(&name, known, path)));
                }
            }
        }
    }

    fn hint(&self, name: &str, siblings: &Table, path: &str) -> String {
        let here = siblings.keys().map(|key| join(path, key));
        let near = here.chain(self.every.iter().cloned()).map(|known| (likeness(name, &known), known));
        match near.max_by(|one, other| one.0.total_cmp(&other.0)) {
            Some((likeness, known)) if likeness >= LIKE => format!("; did you mean {known}?"),
            _ => {
                let keys: Vec<&str> = siblings.keys().map(String::as_str).collect();
                let place = if path.is_empty() { "the top".to_owned() } else { format!("[{path}]") };
                format!("; known at {place}: {}", keys.join(", "))
            }
        }
    }
}

/// How alike two dotted names are; a key that is right but stands in another table is near too.
fn likeness(name: &str, known: &str) -> f64 {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let whole = strsim::normalized_damerau_levenshtein(name, known);
    let ends = strsim::normalized_damerau_levenshtein(&last(name), &last(known));
    whole.max(ends * 0.99)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
