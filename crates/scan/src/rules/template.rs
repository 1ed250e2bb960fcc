//! Examples are written as templates, so that no file holds anything that looks like a credential: `ghp_{alnum:30}{github}`.
//!
//! | in a template | becomes |
//! |---|---|
//! | `{alnum:36}` | 36 random letters and digits; other alphabets below |
//! | `{}` | nothing: cuts words that scanners look for |
//! | `{(}`, `{)}` | a brace |
//! | `{base64:…}`, `{base64url:…}` | the encoded text; templates inside are expanded first |
//! | `{github}`, `{stellar}` | the checksum of the token before it, back to the last blank or quote |
//! | `{jwt}` | a JSON web token |
//! | `{uuid}` | a random UUID |
//!
//! The same template and variant always give the same text.

use thiserror::Error;

use super::checksum;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    #[error("a brace is not closed")]
    Open,
    #[error("no alphabet `{}`", .0.escape_debug())]
    Alphabet(String),
    #[error("no length `{}`", .0.escape_debug())]
    Length(String),
}

const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const DIGITS: &str = "0123456789";
const MOST_LETTERS: usize = 1 << 16;

pub fn expand(template: &str, variant: u64) -> Result<Vec<u8>, TemplateError> {
    let mut dice = TemplateRng::new(template, variant);
    expanded(template, &mut dice)
}

fn expanded(template: &str, dice: &mut TemplateRng) -> Result<Vec<u8>, TemplateError> {
    let mut out = Vec::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some((before, from)) = rest.split_once('{') {
        out.extend_from_slice(before.as_bytes());
        let (inside, behind) = closed(from).ok_or(TemplateError::Open)?;
        place(inside, dice, &mut out)?;
        rest = behind;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Up to the brace that closes, and behind it.
fn closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((text.get(..at)?, text.get(at + 1..)?)),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn place(inside: &str, dice: &mut TemplateRng, out: &mut Vec<u8>) -> Result<(), TemplateError> {
    match inside.split_once(':').unwrap_or((inside, "")) {
        ("", _) => {}
        ("(", _) => out.push(b'{'),
        (")", _) => out.push(b'}'),
        ("base64", text) => out.extend(base64(&expanded(text, dice)?, b"+/", "=")),
        ("base64url", text) => out.extend(base64(&expanded(text, dice)?, b"-_", "")),
        ("jwt", _) => {
            let claims = r#"{(}"sub":"{digit:10}","name":"{lower:8}","iat":{digit:10}{)}"#;
            let token = format!(
                r#"{{base64url:{{(}}"alg":"HS256","typ":"JWT"{{)}}}}.{{base64url:{claims}}}.{{b64url:43}}"#
            );
            out.extend(expanded(&token, dice)?);
        }
        ("uuid", _) => out.extend(expanded("{hex:8}-{hex:4}-4{hex:3}-a{hex:3}-{hex:12}", dice)?),
        ("github", _) => out.extend(checksum::github_sum(last_word(out))),
        ("stellar", _) => out.extend(checksum::stellar_end(last_word(out))),
        (name, length) => {
            let letters = alphabet(name).ok_or_else(|| TemplateError::Alphabet(name.to_owned()))?;
            let length: usize = length
                .parse()
                .ok()
                .filter(|length| *length <= MOST_LETTERS)
                .ok_or_else(|| TemplateError::Length(length.to_owned()))?;
            out.extend((0..length).filter_map(|_| letters.as_bytes().get(dice.below(letters.len()))));
        }
    }
    Ok(())
}

fn last_word(out: &[u8]) -> &[u8] {
    let is_gap = |byte: &u8| matches!(byte, b' ' | b'\n' | b'"' | b'\'' | b'=' | b':' | b'/' | b'@');
    out.rsplit(is_gap).next().unwrap_or_default()
}

fn alphabet(name: &str) -> Option<String> {
    Some(match name {
        "alnum" => format!("{UPPER}{LOWER}{DIGITS}"),
        "alpha" => format!("{UPPER}{LOWER}"),
        "upper" => UPPER.to_owned(),
        "lower" => LOWER.to_owned(),
        "digit" => DIGITS.to_owned(),
        "hex" => format!("{DIGITS}abcdef"),
        "HEX" => format!("{DIGITS}ABCDEF"),
        "upnum" => format!("{UPPER}{DIGITS}"),
        "lownum" => format!("{LOWER}{DIGITS}"),
        "base32" => format!("{UPPER}234567"),
        "b64" => format!("{UPPER}{LOWER}{DIGITS}+/"),
        "b64url" => format!("{UPPER}{LOWER}{DIGITS}-_"),
        "word" => format!("{UPPER}{LOWER}{DIGITS}_"),
        "bech32" => "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L".to_owned(),
        _ => return None,
    })
}

fn base64(bytes: &[u8], last: &[u8; 2], padding: &str) -> Vec<u8> {
    let letters: Vec<u8> = [UPPER, LOWER, DIGITS].concat().into_bytes().into_iter().chain(*last).collect();
    let mut out = Vec::new();
    for triple in bytes.chunks(3) {
        let value = triple
            .iter()
            .chain([0, 0].iter())
            .take(3)
            .fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
        let sextets = (0..=triple.len()).map(|at| (value >> (18 - 6 * at)) as usize & 63);
        out.extend(sextets.filter_map(|sextet| letters.get(sextet)));
        out.extend(padding.repeat(3 - triple.len()).bytes());
    }
    out
}

/// A small generator (splitmix64): the same on every machine, for ever.
struct TemplateRng(u64);

impl TemplateRng {
    fn new(template: &str, variant: u64) -> Self {
        let seed = template.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed ^ variant.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) % limit.max(1) as u64) as usize
    }
}
