//! Validation of JSON beyond its grammar, and its canonical form, in one walk over the text. The server checks requests
//! with it, and the SDK checks results, because the server would refuse a report with an invalid one.
//!
//! Refused are nesting beyond a limit, a key that an object has twice, text that is not Unicode, and numbers that no
//! double holds. The canonical form is the same for two texts exactly when their content is: white space, the order
//! of keys, escapes and the spelling of numbers do not matter. Integers beyond 64 bits are compared as doubles.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Deepest nesting of arrays and objects in a request.
pub const MAX_JSON_DEPTH: usize = 64;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From the root; empty when it cannot be said.
    pub path: String,
    pub what: String,
}

/// Checks a text whose arrays and objects may be nested so deep.
pub fn check(text: &[u8], max_depth: usize) -> Result<(), Fault> {
    walk(text, max_depth, None)
}

/// The canonical form of a text.
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut form = Vec::with_capacity(text.len());
    walk(text, MAX_JSON_DEPTH, Some(&mut form))?;
    Ok(form)
}

fn walk(text: &[u8], max_depth: usize, form: Option<&mut Vec<u8>>) -> Result<(), Fault> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let walked = Walk { form, depth: 0, max_depth }.deserialize(&mut json).and_then(|()| json.end());
    walked.map_err(|_| fault(text, max_depth))
}

/// Walks again to say where it went wrong. Keeping track of the place takes longer than all else, and most texts are
/// right.
fn fault(text: &[u8], max_depth: usize) -> Fault {
    let mut json = serde_json::Deserializer::from_slice(text);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    match (Walk { form: None, depth: 0, max_depth }).deserialize(tracked) {
        Err(error) => Fault { path: format_path(&track.path()), what: error.to_string() },
        Ok(()) => {
            let what = json.end().map_or_else(|error| error.to_string(), |()| "malformed".to_owned());
            Fault { path: String::new(), what }
        }
    }
}

/// The root has no name, and what could not be named is left out.
pub fn format_path(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    let named = path.trim_end_matches('?').trim_end_matches('.');
    named.to_owned()
}

struct Walk<'a> {
    form: Option<&'a mut Vec<u8>>,
    depth: usize,
    max_depth: usize,
}

impl Walk<'_> {
    fn write(&mut self, tag: u8, content: &[u8]) {
        if let Some(form) = &mut self.form {
            form.push(tag);
            form.extend_from_slice(content);
        }
    }

    fn write_text(&mut self, text: &str) {
        self.write(b's', &(text.len() as u64).to_be_bytes());
        if let Some(form) = &mut self.form {
            form.extend_from_slice(text.as_bytes());
        }
    }

    /// A walk over something inside of this.
    fn inner<E: Error>(&mut self) -> Result<Walk<'_>, E> {
        if self.depth == self.max_depth {
            return Err(E::custom(format!("nested deeper than {} levels", self.max_depth)));
        }
        Ok(Walk { form: self.form.as_deref_mut(), depth: self.depth + 1, max_depth: self.max_depth })
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.write(b'n', &[]);
        Ok(())
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<(), E> {
        self.write(if value { b't' } else { b'f' }, &[]);
        Ok(())
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<(), E> {
        self.write(b'i', &i128::from(value).to_be_bytes());
        Ok(())
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<(), E> {
        self.write(b'i', &i128::from(value).to_be_bytes());
        Ok(())
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<(), E> {
        // 2^64 and its negative: between them a whole number is written as one, so that 1.0 is 1.
        const WHOLE_LIMIT: f64 = 18_446_744_073_709_551_616.0;
        if value.fract() == 0.0 && value.abs() < WHOLE_LIMIT {
            self.write(b'i', &(value as i128).to_be_bytes())
        } else {
            self.write(b'd', &value.to_bits().to_be_bytes())
        }
        Ok(())
    }

    fn visit_str<E>(mut self, value: &str) -> Result<(), E> {
        self.write_text(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.write(b'[', &[]);
        loop {
            let inner = self.inner()?;
            if seq.next_element_seed(inner)?.is_none() {
                break;
            }
        }
        self.write(b']', &[]);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.write(b'{', &[]);
        let begin = self.form.as_ref().map_or(0, |form| form.len());
        let (mut keys, mut entries) = (Keys::default(), Vec::new());
        while let Some(Key(key)) = map.next_key()? {
            let start = self.form.as_ref().map_or(0, |form| form.len());
            self.write_text(&key);
            if let Err(twice) = keys.insert(key) {
                return Err(A::Error::custom(format!("the key {twice:?} occurs twice")));
            }
            map.next_value_seed(self.inner()?)?;
            if let Some(form) = &self.form {
                entries.push(Entry { start, end: form.len() });
            }
        }
        if let Some(form) = &mut self.form
            && !entries.is_sorted_by(|a, b| a.key(form) < b.key(form))
        {
            entries.sort_by(|a, b| a.key(form).cmp(b.key(form)));
            let unsorted = form.split_off(begin);
            for entry in &entries {
                form.extend_from_slice(&unsorted[entry.start - begin..entry.end - begin]);
            }
        }
        self.write(b'}', &[]);
        Ok(())
    }
}

/// The keys of an object so far. A key is refused when it comes for the second time, so that an object of equal keys takes no
/// memory; different keys take more bytes of the text the more there are.
#[derive(Default)]
struct Keys<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Keys<'de> {
    /// Up to so many keys are compared one by one, which takes less time than to hash them.
    const MAX_FEW: usize = 16;

    /// Returns the key if the object has it already.
    fn insert(&mut self, key: Cow<'de, str>) -> Result<(), Cow<'de, str>> {
        if self.few.contains(&key) || self.many.contains(&key) {
            return Err(key);
        }
        if self.few.len() < Keys::MAX_FEW {
            self.few.push(key);
        } else {
            self.many.insert(key);
        }
        Ok(())
    }
}

/// Where a key and its value stand in the form.
struct Entry {
    start: usize,
    end: usize,
}

impl Entry {
    /// The text of the key, behind its tag and its length.
    fn key<'a>(&self, form: &'a [u8]) -> &'a [u8] {
        const TAG_BYTES: usize = 1;
        const LENGTH_BYTES: usize = size_of::<u64>();
        let text = &form[self.start + TAG_BYTES..];
        let length = text.first_chunk().map_or(0, |length| u64::from_be_bytes(*length)) as usize;
        &text[LENGTH_BYTES..LENGTH_BYTES + length]
    }
}

/// A key, borrowed where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &[u8]) -> Result<(), Fault> {
        super::check(text, MAX_JSON_DEPTH)
    }

    fn form(text: &str) -> Vec<u8> {
        canonical(text.as_bytes()).unwrap()
    }

    #[test]
    fn spelling_does_not_matter() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, " { \"b\" : [ true , null ] ,\n\"a\" : 1 } "),
            (r#""A""#, r#""\u0041""#),
            ("1", "1.0"),
            ("100", "1e2"),
            ("0", "-0"),
            ("-5", "-5.0"),
            (r#"{"x":{"q":1,"p":2},"a":3}"#, r#"{"a":3,"x":{"p":2,"q":1}}"#),
        ] {
            assert_eq!(form(one), form(other), "{one} and {other}");
        }
    }

    #[test]
    fn content_matters() {
        let different = [
            "null",
            "true",
            "false",
            "0",
            "1",
            "-1",
            "1.5",
            "18446744073709551615",
            "1e30",
            r#""""#,
            r#""1""#,
            "[]",
            "[[]]",
            "[1]",
            "[1,1]",
            "[[1],1]",
            "[1,[1]]",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"b":1}"#,
            r#"{"a":{"b":1}}"#,
            r#"{"a":{},"b":1}"#,
            r#"["a",1]"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
        ];
        for (n, one) in different.iter().enumerate() {
            for other in &different[n + 1..] {
                assert_ne!(form(one), form(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn i1_a_key_that_occurs_twice_is_refused_where_it_stands() {
        let fault = check(br#"{"task":{"a":1,"b":2,"a":1}}"#).unwrap_err();
        assert_eq!(fault.path, "task");
        assert!(fault.what.contains("\"a\" occurs twice"), "{}", fault.what);
        assert!(check(br#"{"a":1,"\u0061":2}"#).is_err(), "escapes do not hide it");
        assert!(check(br#"{"a":1,"b":{"a":1}}"#).is_ok(), "other objects have their own keys");
    }

    /// Small objects compare their keys one by one, and large ones hash them.
    #[test]
    fn i1_the_keys_of_large_objects_are_told_apart_and_sorted() {
        let object = |keys: &[usize]| {
            let entries: Vec<_> = keys.iter().map(|n| format!("\"k{n}\":{n}")).collect();
            format!("{{{}}}", entries.join(","))
        };
        let mut keys: Vec<usize> = (0..3 * Keys::MAX_FEW).collect();
        let sorted = form(&object(&keys));
        keys.reverse();
        assert_eq!(form(&object(&keys)), sorted);
        for twice in [0, Keys::MAX_FEW, 3 * Keys::MAX_FEW - 1] {
            let text = object(&[&keys[..], &[twice]].concat());
            let fault = check(text.as_bytes()).unwrap_err();
            assert!(fault.what.contains(&format!("\"k{twice}\" occurs twice")), "{}", fault.what);
        }
    }

    #[test]
    fn i1_nesting_is_limited() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(check(nested(MAX_JSON_DEPTH).as_bytes()).is_ok());
        assert!(check(nested(MAX_JSON_DEPTH + 1).as_bytes()).unwrap_err().what.contains("nested deeper"));
        assert!(check("[".repeat(1_000_000).as_bytes()).is_err());
        assert!(check("{\"a\":".repeat(200_000).as_bytes()).is_err());
    }

    #[test]
    fn i1_what_is_not_json_is_refused() {
        for text in ["", "{", "nul", "NaN", "[1,]", "{\"a\":1,}", "1 2", "1e999", r#""\ud800""#, "\"\u{1}\""]
        {
            assert!(check(text.as_bytes()).is_err(), "{text}");
        }
        assert!(check(b"\"\xff\"").is_err(), "bytes that are not UTF-8");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = canonical(&text);
        }

        #[test]
        fn nothing_that_looks_like_json_makes_it_panic(text in "[\\[\\]{}:,\"a0-9.e\\\\u -]{0,80}") {
            let _ = check(text.as_bytes());
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(&text);
            if let Ok(value) = parsed && let Ok(form) = canonical(text.as_bytes()) {
                prop_assert_eq!(form, canonical(value.to_string().as_bytes()).unwrap());
            }
        }
    }
}
