//! Validates JSON as the coordinator does, beyond its grammar: bounded nesting, no repeated keys, Unicode text, and numbers
//! that a double holds. The coordinator would refuse the whole report with an invalid result.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use wire::Json;

/// The coordinator accepts bodies of 64 levels, and the report around the result is one of them.
const MAX_RESULT_LEVELS: usize = 63;

/// Checks a result.
pub(crate) fn check(result: &Json) -> Result<(), serde_json::Error> {
    Walk { levels_left: MAX_RESULT_LEVELS }
        .deserialize(&mut serde_json::Deserializer::from_str(result.as_text()))
}

#[derive(Clone, Copy)]
struct Walk {
    levels_left: usize,
}

impl Walk {
    fn inner<E: Error>(self) -> Result<Walk, E> {
        let too_deep = || E::custom(format!("nested deeper than {MAX_RESULT_LEVELS} levels"));
        Ok(Walk { levels_left: self.levels_left.checked_sub(1).ok_or_else(too_deep)? })
    }
}

impl<'de> DeserializeSeed<'de> for Walk {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while seq.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(inner)?;
            if let Some(twice) = keys.replace(key) {
                return Err(A::Error::custom(format!("the key {twice:?} occurs twice")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(text: impl Into<String>) -> bool {
        check(&Json::from_text(text).unwrap()).is_ok()
    }

    #[test]
    fn nesting_is_bounded() {
        let lists = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let objects = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        assert!(is_taken(lists(MAX_RESULT_LEVELS)) && is_taken(objects(MAX_RESULT_LEVELS)));
        assert!(!is_taken(lists(MAX_RESULT_LEVELS + 1)) && !is_taken(objects(MAX_RESULT_LEVELS + 1)));
    }

    #[test]
    fn what_keeps_to_the_grammar_and_no_more_is_found() {
        for refused in
            [r#""\ud800""#, r#"{"\udfff":1}"#, "1e999", r#"{"a":1,"\u0061":2}"#, r#"[{"a":1,"a":1}]"#]
        {
            assert!(!is_taken(refused), "{refused}");
        }
        for taken in
            ["null", "true", "-1", "1.5", "18446744073709551616", r#""\ud83d\ude00""#, r#"[{"a":{"a":"["}}]"#]
        {
            assert!(is_taken(taken), "{taken}");
        }
    }
}
