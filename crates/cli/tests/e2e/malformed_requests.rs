//! Sound requests with something wrong in them: as JSON and as bytes.

use serde_json::{Map, Value};

/// Chance that is the same every time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Another for each name.
    pub(crate) fn named(name: &str) -> Self {
        Self::new(name.bytes().fold(0x5eed, |sum: u64, byte| sum.wrapping_mul(31) ^ u64::from(byte)))
    }

    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.roll() % most.max(1) as u64).unwrap()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.roll().to_be_bytes()[3]
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// What no field means, as text: some of it is no JSON that a value could hold.
const STRANGE: &[&str] = &[
    "null",
    "true",
    "-1",
    "0.5",
    "1e400",
    "18446744073709551616",
    "9223372036854775807",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\u202etxt\"",
    "\"no-such-word\"",
    "\"../../etc/passwd\"",
    "\"ses_00000000000000000000000000\"",
    "\"%00\"",
    "[]",
    "{}",
    "[null]",
    "{\"only\":7}",
    "{\"base64\":\"*\"}",
    "[[\"deep\"],{\"a\":[{\"b\":[{}]}]}]",
];

/// A request of an object's fields, of which one is wrong in some way. `known` are the fields that the method has besides.
pub(crate) fn wrong(dice: &mut Dice, sound: &Value, known: &[String]) -> String {
    let mut fields: Vec<(String, String)> = shown(sound.as_object().unwrap());
    match dice.below(12) {
        0 => return (*dice.pick(&["[]", "null", "7", "\"x\"", "[{}]", "true"])).to_owned(),
        1 => return "[".repeat(300),
        2 if !fields.is_empty() => drop(fields.remove(dice.below(fields.len()))),
        3 if !fields.is_empty() => {
            let (name, _) = dice.pick(&fields).clone();
            fields.push((name, strange(dice)));
        }
        4 => fields.push(("no-such-field".to_owned(), strange(dice))),
        5..=7 if !known.is_empty() => {
            let name = dice.pick(known).clone();
            fields.retain(|(other, _)| *other != name);
            fields.push((name, strange(dice)));
        }
        _ if fields.is_empty() => fields.push(("no-such-field".to_owned(), strange(dice))),
        kind => {
            let at = dice.below(fields.len());
            let value = fields[at].1.clone();
            fields[at].1 = match kind {
                8 => format!("[{value}]"),
                9 => format!("{{\"x\":{value}}}"),
                10 => format!("\"{}\"", "x".repeat(3000)),
                _ => strange(dice),
            };
        }
    }
    joined(&fields)
}

/// The same with a field that nobody knows, whatever else is in it: for what must not be done.
pub(crate) fn never_sound(text: &str) -> String {
    let nonsense = "{\"no-such-field\":true";
    match text.strip_prefix('{') {
        Some("}") => format!("{nonsense}}}"),
        Some(rest) => format!("{nonsense},{rest}"),
        None => text.to_owned(),
    }
}

fn strange(dice: &mut Dice) -> String {
    match dice.below(20) {
        0 => format!("{}1{}", "[".repeat(100), "]".repeat(100)),
        1 => format!("\"{}\"", "y".repeat(20_000)),
        _ => (*dice.pick(STRANGE)).to_owned(),
    }
}

fn shown(fields: &Map<String, Value>) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
}

fn joined(fields: &[(String, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// A message with bits that fell over, cut off, with lengths that are not so, fields twice, or fields of another kind.
pub(crate) fn bent(dice: &mut Dice, sound: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    let at = dice.below(bytes.len());
    match dice.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.extend_from_slice(sound),
        2 => bytes = sound.repeat(40),
        // A field of some number and kind, and whatever length.
        3 => bytes.splice(at..at, [dice.byte(), dice.byte() | 0x80, dice.byte()]).for_each(drop),
        4 => bytes.extend((0..dice.below(40)).map(|_| dice.byte()).collect::<Vec<u8>>()),
        _ => {
            for _ in 0..=dice.below(3) {
                let at = dice.below(bytes.len());
                let bit = 1_u8 << dice.below(8);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bit);
            }
        }
    }
    bytes
}
