//! Rules and registered secrets that are built into a scanner when something has to be looked at closer.
//!
//! Most command lines and most outputs have nothing in them that a rule or a secret begins with. A short look says so, and
//! costs less than reading the rules.

use std::sync::{Arc, OnceLock};

use crate::argv::{self, Redacting};
use crate::disguise::ForPeople;
use crate::exact::{self, ExactError, Form};
use crate::finding::{Finding, Fingerprint, Salt};
use crate::scanner::{Redacted, Scanner, Searched};
use crate::stream::{Output, Pause, Stream};
use crate::{SHORT, contains, may_match, tail};

/// A scanner that costs nothing until it is needed. Cheap to clone, shared between threads.
#[derive(Clone, Default)]
pub struct LazyScanner(Arc<Parts>);

/// Asked once, when the scanner is built.
type SaltSource = Box<dyn Fn() -> Option<Salt> + Send + Sync>;

#[derive(Default)]
struct Parts {
    forms: Vec<Form>,
    salt: Option<SaltSource>,
    built: OnceLock<Scanner>,
}

impl LazyScanner {
    /// The built-in rules and the exact values of these secrets, by name. `salt` is asked for when it is needed.
    pub fn new<'s>(
        secrets: impl IntoIterator<Item = (&'s str, &'s [u8])>,
        salt: impl Fn() -> Option<Salt> + Send + Sync + 'static,
    ) -> Result<Self, ExactError> {
        let mut forms = Vec::new();
        for (name, value) in secrets {
            forms.extend(exact::forms(name, value)?);
        }
        Ok(Self(Arc::new(Parts { forms, salt: Some(Box::new(salt)), built: OnceLock::new() })))
    }

    /// The whole of it, built on first use.
    pub fn scanner(&self) -> &Scanner {
        self.0.built.get_or_init(|| {
            let salt = self.0.salt.as_ref().and_then(|salt| salt());
            Scanner::of_forms(self.0.forms.clone(), salt)
        })
    }

    pub fn redact(&self, input: &[u8]) -> Redacted {
        if self.may_match(input) {
            return self.scanner().redact(input);
        }
        Redacted { clean: input.to_vec(), findings: Vec::new(), refused: 0 }
    }

    pub fn search(&self, input: &[u8]) -> Searched {
        if self.may_match(input) {
            return self.scanner().search(input);
        }
        Searched { findings: Vec::new(), refused: 0 }
    }

    /// As [`crate::redact_argv`], with the registered secrets.
    pub fn redact_argv<A: AsRef<[u8]>>(&self, argv: &[A]) -> (Vec<Vec<u8>>, Vec<(usize, Finding)>) {
        argv::redacted(argv, self)
    }

    /// As [`Self::redact`], for what people read: text that only pretends to be a private key stays.
    pub fn redact_for_people(&self, input: &[u8]) -> Redacted {
        ForPeople(self).redact(input)
    }

    /// As [`Self::redact_argv`], for what people read.
    pub fn redact_argv_for_people<A: AsRef<[u8]>>(
        &self,
        argv: &[A],
    ) -> (Vec<Vec<u8>>, Vec<(usize, Finding)>) {
        argv::redacted(argv, &ForPeople(self))
    }

    pub fn stream(&self) -> LazyStream {
        LazyStream { scanner: self.clone(), seen: Vec::new(), given: 0, stream: None, grown: |stream| stream }
    }

    /// As [`Stream::with_threads`], once the input is long.
    pub fn stream_with_threads(&self) -> LazyStream {
        LazyStream { grown: Stream::with_threads, ..self.stream() }
    }

    fn may_match(&self, input: &[u8]) -> bool {
        may_match(input) || (!self.0.forms.is_empty() && self.has_form(input))
    }

    fn has_form(&self, input: &[u8]) -> bool {
        let lower = input.to_ascii_lowercase();
        self.0.forms.iter().any(|form| contains(&lower, &form.announcement()))
    }

    /// Whether `input` ends with what a secret may begin with.
    fn is_started(&self, input: &[u8], pause: Pause) -> bool {
        self.0.forms.iter().any(|form| form.started(input, pause) > 0)
    }
}

impl Redacting for LazyScanner {
    fn may_match(&self, input: &[u8]) -> bool {
        LazyScanner::may_match(self, input)
    }

    fn redact(&self, input: &[u8]) -> Redacted {
        LazyScanner::redact(self, input)
    }

    fn fingerprint(&self, value: &[u8]) -> Option<Fingerprint> {
        self.0.salt.as_ref().and_then(|salt| salt()).map(|salt| salt.fingerprint(value))
    }
}

impl std::fmt::Debug for LazyScanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LazyScanner({} forms of secrets)", self.0.forms.len())
    }
}

/// As [`Stream`], built when the input has become long or suspicious.
#[derive(Debug)]
pub struct LazyStream {
    scanner: LazyScanner,
    /// Everything so far, until there is a stream that knows it.
    seen: Vec<u8>,
    /// So much of it was given out.
    given: usize,
    stream: Option<Stream>,
    /// What the stream becomes when there is one.
    grown: fn(Stream) -> Stream,
}

impl LazyStream {
    /// As [`Stream::push`].
    pub fn push(&mut self, chunk: &[u8], output: &mut Output) {
        if self.stream.is_none() && self.seen.len() + chunk.len() <= SHORT {
            return self.seen.extend_from_slice(chunk);
        }
        self.stream().push(chunk, output);
    }

    /// As [`Stream::settle`].
    pub fn settle(&mut self, pause: Pause, output: &mut Output) {
        let undecided = self.is_suspicious()
            || tail::is_encoded(&self.seen)
            || self.scanner.is_started(&self.seen, pause);
        if self.stream.is_some() || undecided {
            return self.stream().settle(pause, output);
        }
        output.copy(self.seen.get(self.given..).unwrap_or_default());
        self.given = self.seen.len();
    }

    /// As [`Stream::finish`].
    pub fn finish(mut self, output: &mut Output) -> u64 {
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

    fn stream(&mut self) -> &mut Stream {
        let Self { scanner, seen, given, stream, grown } = self;
        stream.get_or_insert_with(|| {
            grown(Stream::after(scanner.scanner().clone(), std::mem::take(seen), *given))
        })
    }
}
