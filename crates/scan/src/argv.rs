//! Redaction of command lines: options whose value is a secret, and secrets that are split over arguments.

use std::ops::Range;
use std::sync::Arc;

use crate::finding::{Confidence, EncodingLayers, Finding, SecretFingerprint, mark};
use crate::rules::is_reference;
use crate::scanner::RedactedOutput;
use crate::{may_match, redact};

/// Options whose value is a secret, by the end of their name, in lower case with `-` between words.
pub(crate) const SECRET_OPTIONS: &[&str] =
    &["password", "passwd", "passphrase", "token", "secret", "api-key", "apikey", "access-key", "secret-key"];

/// Short options that are secret only for one program.
const PROGRAM_OPTIONS: &[(&str, &[&str], ArgPart)] = &[
    ("curl", &["-u", "--user", "-U", "--proxy-user"], ArgPart::AfterColon),
    ("sshpass", &["-p"], ArgPart::Whole),
];

const OPTION: &str = "option";

#[derive(Clone, Copy)]
enum ArgPart {
    Whole,
    /// `user:password`
    AfterColon,
}

/// Redacts a command line, and returns the findings with the index of their argument.
///
/// Besides what [`redact`] finds in each argument, this knows options whose value is a secret: `--password=…`, `--token …`, `curl
/// -u user:…`.
pub fn redact_argv<A: AsRef<[u8]>>(argv: &[A]) -> (Vec<Vec<u8>>, Vec<(usize, Finding)>) {
    redacted(argv, &BuiltinRules)
}

/// Finds secrets in one argument.
pub(crate) trait ArgRedactor {
    fn may_match(&self, input: &[u8]) -> bool;
    fn redact(&self, input: &[u8]) -> RedactedOutput;
    /// Fingerprint of a value that no rule has found.
    fn fingerprint(&self, value: &[u8]) -> Option<SecretFingerprint>;
}

struct BuiltinRules;

impl ArgRedactor for BuiltinRules {
    fn may_match(&self, input: &[u8]) -> bool {
        may_match(input)
    }

    fn redact(&self, input: &[u8]) -> RedactedOutput {
        redact(input)
    }

    fn fingerprint(&self, _value: &[u8]) -> Option<SecretFingerprint> {
        None
    }
}

pub(crate) fn redacted<A: AsRef<[u8]>>(
    argv: &[A],
    scanner: &impl ArgRedactor,
) -> (Vec<Vec<u8>>, Vec<(usize, Finding)>) {
    let program = argv.first().map(|program| base_name(program.as_ref())).unwrap_or_default();
    // One check of the whole line instead of one per argument: nearly every command line ends here.
    let suspicious = scanner.may_match(&argv.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(&b'\n'));
    let by_shape = |arg: &[u8]| {
        let clean = || RedactedOutput { clean: arg.to_vec(), findings: Vec::new(), refused: 0 };
        let redacted = if suspicious { scanner.redact(arg) } else { clean() };
        (redacted.clean, redacted.findings)
    };
    let (mut clean, mut findings) = (Vec::with_capacity(argv.len()), Vec::new());
    let mut expected = None;
    for (index, arg) in argv.iter().enumerate() {
        let arg = arg.as_ref();
        let secret = expected.take().and_then(|part| as_value(arg, part)).or_else(|| own_value(arg, index));
        expected = if secret.is_none() && index > 0 { expects(program, arg) } else { None };
        let option = |start: usize| by_option(arg, start, scanner);
        let (shown, found) = secret.map_or_else(|| by_shape(arg), option);
        clean.push(shown);
        findings.extend(found.into_iter().map(|finding| (index, finding)));
    }
    for (pieces, finding) in cut(argv, scanner) {
        let first = pieces.first().map(|(index, place)| (*index, place.clone()));
        for (index, place) in pieces {
            let unchanged = argv.get(index).map(AsRef::as_ref).unwrap_or_default();
            if let Some(shown) = clean.get_mut(index) {
                *shown = without(shown, unchanged, place, &mark(&finding.rule));
            }
        }
        findings.extend(
            first.map(|(index, place)| (index, Finding { start: place.start, end: place.end, ..finding })),
        );
    }
    (clean, findings)
}

/// Parts of several arguments, by index.
type ArgSlices = Vec<(usize, Range<usize>)>;

/// Finds a secret that is split over several arguments and that the called program would join. Registered values are searched in
/// all arguments together, shapes in two neighbours. Context rules are not used here, because they would match in every second
/// command line.
fn cut<A: AsRef<[u8]>>(argv: &[A], scanner: &impl ArgRedactor) -> Vec<(ArgSlices, Finding)> {
    let is_stored = |confidence: Confidence| confidence == Confidence::Exact;
    let is_shape = |confidence: Confidence| matches!(confidence, Confidence::Shape | Confidence::Checksum);
    let mut found = Vec::new();
    for between in [&b""[..], b" "] {
        found.extend(across(argv, between, scanner).into_iter().filter(|(_, it)| is_stored(it.confidence)));
    }
    for (from, pair) in argv.windows(2).enumerate() {
        let shapes = across(pair, b"", scanner).into_iter().filter(|(_, it)| is_shape(it.confidence));
        found.extend(shapes.map(|(mut pieces, finding)| {
            pieces.iter_mut().for_each(|(index, _)| *index += from);
            (pieces, finding)
        }));
    }
    found
}

/// Findings in the arguments joined by `between` that cover more than one of them.
fn across<A: AsRef<[u8]>>(
    argv: &[A],
    between: &[u8],
    scanner: &impl ArgRedactor,
) -> Vec<(ArgSlices, Finding)> {
    let line = argv.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(between);
    if argv.len() < 2 || !scanner.may_match(&line) {
        return Vec::new();
    }
    let mut across = Vec::new();
    for finding in scanner.redact(&line).findings {
        let mut begin = 0;
        let mut pieces = Vec::new();
        for (index, arg) in argv.iter().enumerate() {
            let end = begin + arg.as_ref().len();
            let covered = finding.start.max(begin)..finding.end.min(end);
            if covered.start < covered.end {
                pieces.push((index, covered.start - begin..covered.end - begin));
            }
            begin = end + between.len();
        }
        if pieces.len() > 1 {
            across.push((pieces, finding));
        }
    }
    across
}

/// Removes a part of an argument; the whole argument if another part was already removed.
fn without(shown: &[u8], unchanged: &[u8], place: Range<usize>, mark: &str) -> Vec<u8> {
    if shown != unchanged {
        return mark.as_bytes().to_vec();
    }
    let part = |range: Range<usize>| unchanged.get(range).unwrap_or_default();
    [part(0..place.start), mark.as_bytes(), part(place.end..unchanged.len())].concat()
}

/// Treats everything from `start` on as the secret.
fn by_option(arg: &[u8], start: usize, scanner: &impl ArgRedactor) -> (Vec<u8>, Vec<Finding>) {
    let mut shown = arg.get(..start).unwrap_or_default().to_vec();
    shown.extend_from_slice(mark(OPTION).as_bytes());
    let finding = Finding {
        rule: Arc::from(OPTION),
        start,
        end: arg.len(),
        layers: EncodingLayers::default(),
        confidence: Confidence::Context,
        fingerprint: scanner.fingerprint(arg.get(start..).unwrap_or_default()),
    };
    (shown, vec![finding])
}

/// Start of the secret in an argument that is the value of the previous option.
fn as_value(arg: &[u8], part: ArgPart) -> Option<usize> {
    let start = match part {
        // Another option follows, so the previous one had no value.
        ArgPart::Whole if arg.starts_with(b"--") => return None,
        ArgPart::Whole => 0,
        ArgPart::AfterColon => arg.iter().position(|byte| *byte == b':')? + 1,
    };
    (!is_reference(arg.get(start..)?)).then_some(start)
}

/// Start of the secret in `--password=SECRET`.
fn own_value(arg: &[u8], index: usize) -> Option<usize> {
    let equals = arg.iter().position(|byte| *byte == b'=')?;
    let named = index > 0 && is_secret_option(arg.get(..equals)?);
    (named && !is_reference(arg.get(equals + 1..)?)).then_some(equals + 1)
}

fn expects(program: &[u8], arg: &[u8]) -> Option<ArgPart> {
    if is_secret_option(arg) {
        return Some(ArgPart::Whole);
    }
    let of_program = PROGRAM_OPTIONS.iter().find(|(name, options, _)| {
        name.as_bytes() == program && options.iter().any(|option| option.as_bytes() == arg)
    });
    of_program.map(|(_, _, part)| *part)
}

fn is_secret_option(arg: &[u8]) -> bool {
    let Some(name) = arg.strip_prefix(b"--") else { return false };
    let name: Vec<u8> =
        name.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect();
    !name.starts_with(b"no-") && SECRET_OPTIONS.iter().any(|option| name.ends_with(option.as_bytes()))
}

fn base_name(program: &[u8]) -> &[u8] {
    program.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}
