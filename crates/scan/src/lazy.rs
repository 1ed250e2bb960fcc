//! Lazy scanner: builds rules and registered secrets into a scanner only when an input needs it.
//!
//! Most command lines and outputs contain no keyword of a rule or secret. A short check finds that out, and costs less than parsing
//! the rules.

use std::sync::{Arc, OnceLock};

use crate::argv::{self, ArgRedactor};
use crate::disguise::ForPeople;
use crate::finding::{Finding, FingerprintSalt, SecretFingerprint};
use crate::registered_secrets::{self, RegisteredSecretError, SecretForm};
use crate::scanner::{RedactedOutput, Scanner, SearchReport};
use crate::stream::{PauseLength, ScanOutput, ScanStream};
use crate::{SHORT, contains, may_match, partial_secret};

/// A scanner that is built on first need. Cheap to clone, shared between threads.
#[derive(Clone, Default)]
pub struct LazyScanner(Arc<LazyParts>);

/// Called once, when the scanner is built.
type SaltSource = Box<dyn Fn() -> Option<FingerprintSalt> + Send + Sync>;

#[derive(Default)]
struct LazyParts {
    forms: Vec<SecretForm>,
    salt: Option<SaltSource>,
    built: OnceLock<Scanner>,
}

impl LazyScanner {
    /// The built-in rules and the exact values of these secrets, by name. `salt` is asked for when it is needed.
    pub fn new<'s>(
        secrets: impl IntoIterator<Item = (&'s str, &'s [u8])>,
        salt: impl Fn() -> Option<FingerprintSalt> + Send + Sync + 'static,
    ) -> Result<Self, RegisteredSecretError> {
        let mut forms = Vec::new();
        for (name, value) in secrets {
            forms.extend(registered_secrets::forms(name, value)?);
        }
        Ok(Self(Arc::new(LazyParts { forms, salt: Some(Box::new(salt)), built: OnceLock::new() })))
    }

    /// The whole of it, built on first use.
    pub fn scanner(&self) -> &Scanner {
        self.0.built.get_or_init(|| {
            let salt = self.0.salt.as_ref().and_then(|salt| salt());
            Scanner::of_forms(self.0.forms.clone(), salt)
        })
    }

    pub fn redact(&self, input: &[u8]) -> RedactedOutput {
        if self.may_match(input) {
            return self.scanner().redact(input);
        }
        RedactedOutput { clean: input.to_vec(), findings: Vec::new(), refused: 0 }
    }

    pub fn search(&self, input: &[u8]) -> SearchReport {
        if self.may_match(input) {
            return self.scanner().search(input);
        }
        SearchReport { findings: Vec::new(), refused: 0 }
    }

    /// As [`crate::redact_argv`], with the registered secrets.
    pub fn redact_argv<A: AsRef<[u8]>>(&self, argv: &[A]) -> (Vec<Vec<u8>>, Vec<(usize, Finding)>) {
        argv::redacted(argv, self)
    }

    /// As [`Self::redact`], for people: text that only imitates a private key is kept.
    pub fn redact_for_people(&self, input: &[u8]) -> RedactedOutput {
        ForPeople(self).redact(input)
    }

    /// As [`Self::redact_argv`], for people.
    pub fn redact_argv_for_people<A: AsRef<[u8]>>(
        &self,
        argv: &[A],
    ) -> (Vec<Vec<u8>>, Vec<(usize, Finding)>) {
        argv::redacted(argv, &ForPeople(self))
    }

    pub fn stream(&self) -> LazyStream {
        LazyStream { scanner: self.clone(), seen: Vec::new(), given: 0, stream: None, grown: |stream| stream }
    }

    /// As [`ScanStream::with_threads`], once the input is long.
    pub fn stream_with_threads(&self) -> LazyStream {
        LazyStream { grown: ScanStream::with_threads, ..self.stream() }
    }

    fn may_match(&self, input: &[u8]) -> bool {
        may_match(input) || (!self.0.forms.is_empty() && self.has_form(input))
    }

    fn has_form(&self, input: &[u8]) -> bool {
        let lower = input.to_ascii_lowercase();
        self.0.forms.iter().any(|form| contains(&lower, &form.announcement()))
    }

    /// Whether `input` ends with a possible beginning of a secret.
    fn is_started(&self, input: &[u8], pause: PauseLength) -> bool {
        self.0.forms.iter().any(|form| form.started(input, pause) > 0)
    }
}

impl ArgRedactor for LazyScanner {
    fn may_match(&self, input: &[u8]) -> bool {
        LazyScanner::may_match(self, input)
    }

    fn redact(&self, input: &[u8]) -> RedactedOutput {
        LazyScanner::redact(self, input)
    }

    fn fingerprint(&self, value: &[u8]) -> Option<SecretFingerprint> {
        self.0.salt.as_ref().and_then(|salt| salt()).map(|salt| salt.fingerprint(value))
    }
}

impl std::fmt::Debug for LazyScanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LazyScanner({} forms of secrets)", self.0.forms.len())
    }
}

/// As [`ScanStream`], built when the input has become long or suspicious.
#[derive(Debug)]
pub struct LazyStream {
    scanner: LazyScanner,
    /// All input so far, until the stream is built.
    seen: Vec<u8>,
    /// Bytes of it that were returned.
    given: usize,
    stream: Option<ScanStream>,
    /// Configures the stream when it is built.
    grown: fn(ScanStream) -> ScanStream,
}

impl LazyStream {
    /// As [`ScanStream::push`].
    pub fn push(&mut self, chunk: &[u8], output: &mut ScanOutput) {
        if self.stream.is_none() && self.seen.len() + chunk.len() <= SHORT {
            return self.seen.extend_from_slice(chunk);
        }
        self.stream().push(chunk, output);
    }

    /// As [`ScanStream::settle`].
    pub fn settle(&mut self, pause: PauseLength, output: &mut ScanOutput) {
        let undecided = self.is_suspicious()
            || partial_secret::is_encoded(&self.seen)
            || self.scanner.is_started(&self.seen, pause);
        if self.stream.is_some() || undecided {
            return self.stream().settle(pause, output);
        }
        output.copy(self.seen.get(self.given..).unwrap_or_default());
        self.given = self.seen.len();
    }

    /// As [`ScanStream::finish`].
    pub fn finish(mut self, output: &mut ScanOutput) -> u64 {
        if self.stream.is_none() && self.is_suspicious() {
            self.stream();
        }
        match self.stream {
            Some(stream) => stream.finish(output),
            None => {
                output.copy(self.seen.get(self.given..).unwrap_or_default());
                0
            }
        }
    }

    fn is_suspicious(&self) -> bool {
        self.stream.is_none() && self.scanner.may_match(&self.seen)
    }

    fn stream(&mut self) -> &mut ScanStream {
        let Self { scanner, seen, given, stream, grown } = self;
        stream.get_or_insert_with(|| {
            grown(ScanStream::after(scanner.scanner().clone(), std::mem::take(seen), *given))
        })
    }
}
