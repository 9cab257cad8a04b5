//! The words of one script line: `name value key=value …`.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use authority::{Backoff, Category, Properties};

use crate::support::commands;

pub(super) struct Words<'a> {
    plain: std::vec::IntoIter<&'a str>,
    pairs: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a str) -> Words<'a> {
        let (pairs, plain): (Vec<_>, Vec<_>) = line.split_whitespace().partition(|word| word.contains('='));
        let pairs = pairs.into_iter().filter_map(|pair| pair.split_once('=')).collect();
        Words { plain: plain.into_iter(), pairs }
    }

    /// The next word without a key.
    pub(super) fn next(&mut self) -> Result<&'a str, String> {
        self.maybe_next().ok_or_else(|| "a word is missing".to_string())
    }

    pub(super) fn maybe_next(&mut self) -> Option<&'a str> {
        self.plain.next()
    }

    pub(super) fn take(&mut self, key: &str) -> Option<&'a str> {
        self.pairs.remove(key)
    }

    pub(super) fn text(&mut self, key: &str) -> Option<Arc<str>> {
        self.take(key).map(Arc::from)
    }

    pub(super) fn number<N: FromStr>(&mut self, key: &str) -> Result<Option<N>, String> {
        let Some(text) = self.take(key) else { return Ok(None) };
        text.replace('_', "").parse().map(Some).map_err(|_| format!("{key}={text} is not such a number"))
    }

    /// `os:linux,arch:arm64`
    pub(super) fn properties(&mut self, key: &str) -> Arc<Properties> {
        let text = self.take(key).unwrap_or_default();
        let pairs: Vec<_> = text.split(',').filter_map(|pair| pair.split_once(':')).collect();
        commands::properties(&pairs)
    }

    /// `initial:factor:max`, the factor in thousandths, without jitter unless a fourth part says so.
    pub(super) fn backoff(&mut self) -> Result<Option<Backoff>, String> {
        let Some(text) = self.take("backoff") else { return Ok(None) };
        let parts: Result<Vec<u64>, _> = text.split(':').map(str::parse).collect();
        match parts.map_err(|_| format!("{text} is no backoff"))?[..] {
            [initial_ms, factor, max_ms] => Ok(Some(backoff(initial_ms, factor, max_ms, 0))),
            [initial_ms, factor, max_ms, jitter] => Ok(Some(backoff(initial_ms, factor, max_ms, jitter))),
            _ => Err(format!("{text} is no backoff")),
        }
    }

    pub(super) fn categories(&mut self) -> Result<Option<Vec<Category>>, String> {
        let Some(text) = self.take("retryOn") else { return Ok(None) };
        text.split(',').filter(|name| !name.is_empty()).map(category).collect::<Result<_, _>>().map(Some)
    }

    /// Nothing may be left over, so that a misspelt word is an error and not a silent default.
    pub(super) fn end(mut self) -> Result<(), String> {
        match (self.plain.next(), self.pairs.pop_first()) {
            (None, None) => Ok(()),
            (Some(word), _) => Err(format!("{word} is not understood")),
            (None, Some((key, _))) => Err(format!("{key}= is not understood")),
        }
    }
}

pub(super) fn category(name: &str) -> Result<Category, String> {
    Category::from_name(name).ok_or_else(|| format!("{name} is no category"))
}

fn backoff(initial_ms: u64, factor: u64, max_ms: u64, jitter: u64) -> Backoff {
    Backoff { initial_ms, factor_permille: factor as u32, max_ms, jitter_permille: jitter as u32 }
}
