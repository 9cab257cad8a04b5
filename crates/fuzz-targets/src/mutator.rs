//! Makes inputs for a target from its corpus. Each input is a function of a seed and a number, so that any of them can be made
//! again.

use fastrand::Rng;

const MAX_INPUT_BYTES: usize = 64 * 1_024;
/// Most changes of one input, as a power of two.
const MAX_CHANGES_LOG: u32 = 4;
const MAX_INSERTED_BYTES: usize = 64;
const MIN_WORD_BYTES: usize = 2;
const MAX_WORD_BYTES: usize = 32;
const MAX_WORDS: usize = 500;

/// Numbers at which decoders go wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX - 1,
    u64::MAX,
];

/// Texts at which decoders go wrong.
const WORDS: [&str; 22] = [
    "null",
    "true",
    "{}",
    "[]",
    "\"\"",
    "-1",
    "1e308",
    "1e-400",
    "0.1",
    "NaN",
    "..",
    "/",
    "../",
    "\0",
    "\r\n",
    "\\u0000",
    "\u{e9}",
    "\u{feff}",
    "9223372036854775808",
    "18446744073709551616",
    "=",
    ",",
];

pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    seed: u64,
}

impl Mutator {
    pub fn new(corpus: Vec<Vec<u8>>, seed: u64) -> Mutator {
        let mut words: Vec<Vec<u8>> = WORDS.iter().map(|word| word.as_bytes().to_vec()).collect();
        for input in &corpus {
            let parts = input.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
            words.extend(
                parts
                    .filter(|part| (MIN_WORD_BYTES..=MAX_WORD_BYTES).contains(&part.len()))
                    .map(<[u8]>::to_vec),
            );
        }
        words.sort();
        words.dedup();
        words.truncate(MAX_WORDS);
        Mutator { corpus, words, seed }
    }

    /// The input with this number. The first ones are the corpus itself.
    pub fn input(&self, number: u64) -> Vec<u8> {
        if let Some(input) = usize::try_from(number).ok().and_then(|number| self.corpus.get(number)) {
            return input.clone();
        }
        let mut rng = Rng::with_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut input = rng.choice(&self.corpus).cloned().unwrap_or_default();
        for _ in 0..1_u32 << rng.u32(0..=MAX_CHANGES_LOG) {
            self.change(&mut input, &mut rng);
        }
        input.truncate(MAX_INPUT_BYTES);
        input
    }

    fn change(&self, input: &mut Vec<u8>, rng: &mut Rng) {
        let at = rng.usize(0..=input.len());
        let end = at + rng.usize(0..=(input.len() - at).min(MAX_INSERTED_BYTES));
        match rng.u8(0..12) {
            0 | 1 => set(input, at, |byte| byte ^ (1 << rng.u8(0..8))),
            2 => set(input, at, |_| rng.u8(..)),
            3 => set(input, at, |byte| byte.wrapping_add(rng.u8(0..=4)).wrapping_sub(2)),
            4 => drop(input.drain(at..end)),
            5 => insert(input, at, &bytes(rng)),
            6 => {
                let again = input[at..end].to_vec();
                insert(input, at, &again);
            }
            7 => insert(
                input,
                at,
                self.words.get(rng.usize(0..self.words.len().max(1))).map_or(&[], |word| word),
            ),
            8 => overwrite(input, at, &number(rng)),
            9 => {
                let other = rng.choice(&self.corpus).map_or(&[][..], |other| other);
                let from = rng.usize(0..=other.len());
                let part = &other[from..(from + end - at).min(other.len())];
                if rng.bool() { insert(input, at, part) } else { overwrite(input, at, part) }
            }
            10 => replace_digits(input, at, rng),
            _ => input.truncate(at),
        }
    }
}

fn set(input: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = change(*byte);
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if input.len() + bytes.len() <= MAX_INPUT_BYTES {
        input.splice(at..at, bytes.iter().copied());
    }
}

fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    for (byte, new) in input[at..].iter_mut().zip(bytes) {
        *byte = *new;
    }
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    let (same, length) = (rng.bool(), rng.usize(1..=MAX_INSERTED_BYTES));
    let byte = rng.u8(..);
    (0..length).map(|_| if same { byte } else { rng.u8(..) }).collect()
}

/// A number as files and messages have it: of fixed width in both orders, or as a varint.
fn number(rng: &mut Rng) -> Vec<u8> {
    let number = rng.choice(NUMBERS).unwrap_or_default();
    let width = 1 << rng.u8(0..4);
    match rng.u8(0..3) {
        0 => number.to_le_bytes()[..width].to_vec(),
        1 => number.to_be_bytes()[8 - width..].to_vec(),
        _ => {
            let (mut varint, mut rest) = (Vec::new(), number);
            while rest >= 0x80 {
                varint.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            varint.push(rest as u8);
            varint
        }
    }
}

/// Puts another number in the place of the digits at or behind this place.
fn replace_digits(input: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else { return };
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = rng.choice(NUMBERS).unwrap_or_default().to_string();
    input.splice(start..start + length, number.bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_input_can_be_made_again_and_no_seed_gives_the_same_ones() {
        let corpus = || vec![b"{\"queue\":\"mail\",\"priority\":12}".to_vec(), vec![0; 64]];
        let inputs =
            |seed| -> Vec<_> { (0..500).map(|number| Mutator::new(corpus(), seed).input(number)).collect() };
        let first = inputs(1);
        assert_eq!(first, inputs(1));
        assert_ne!(first, inputs(2));
        assert_eq!(first[..2], corpus());
        let different: HashSet<_> = first.iter().collect();
        assert!(different.len() > 400, "{} different inputs", different.len());
        assert!(first.iter().all(|input| input.len() <= MAX_INPUT_BYTES));
    }
}
