//! The scanner: rules and registered secrets, built once into one keyword search.

use std::sync::{Arc, OnceLock};

use crate::finding::{Finding, FingerprintSalt};
use crate::keywords::KeywordSet;
use crate::registered_secrets::{self, RegisteredSecretError, SecretForm};
use crate::rules::{self, ScanRule};
use crate::stream::{ScanOutput, ScanStream};
use crate::window;

/// Finds secrets. Cheap to clone, shared between threads.
#[derive(Clone)]
pub struct Scanner(pub(crate) Arc<ScanEngine>);

pub(crate) struct ScanEngine {
    pub(crate) rules: Vec<Arc<ScanRule>>,
    pub(crate) forms: Vec<SecretForm>,
    pub(crate) keywords: KeywordSet,
    /// What each keyword announces.
    pub(crate) targets: Vec<Vec<KeywordTarget>>,
    pub(crate) salt: Option<FingerprintSalt>,
}

#[derive(Clone, Copy)]
pub(crate) enum KeywordTarget {
    Rule(usize),
    Form(usize),
}

#[derive(Default)]
pub struct ScannerBuilder {
    rules: Option<Vec<Arc<ScanRule>>>,
    forms: Vec<SecretForm>,
    salt: Option<FingerprintSalt>,
}

/// The input with `[redacted:RULE]` in place of each finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedOutput {
    pub clean: Vec<u8>,
    pub findings: Vec<Finding>,
    /// As [`ScanStream::refused`].
    pub refused: u64,
}

/// What an input has in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchReport {
    pub findings: Vec<Finding>,
    /// As [`ScanStream::refused`].
    pub refused: u64,
}

impl Scanner {
    /// The built-in rules without secrets and salt; built on first use.
    pub fn built_in() -> &'static Self {
        static SCANNER: OnceLock<Scanner> = OnceLock::new();
        SCANNER.get_or_init(|| Self::builder().build())
    }

    pub fn builder() -> ScannerBuilder {
        ScannerBuilder::default()
    }

    pub(crate) fn of_forms(forms: Vec<SecretForm>, salt: Option<FingerprintSalt>) -> Self {
        ScannerBuilder { rules: None, forms, salt }.build()
    }

    pub fn stream(&self) -> ScanStream {
        ScanStream::new(self.clone())
    }

    pub fn redact(&self, input: &[u8]) -> RedactedOutput {
        let mut output = ScanOutput::default();
        let mut stream = self.stream();
        stream.push(input, &mut output);
        let refused = stream.finish(&mut output);
        RedactedOutput { clean: output.clean, findings: output.findings, refused }
    }

    /// Searches `input` without making a redacted copy.
    pub fn search(&self, input: &[u8]) -> SearchReport {
        let mut output = ScanOutput::findings_only();
        let mut stream = self.stream();
        stream.push(input, &mut output);
        let refused = stream.finish(&mut output);
        SearchReport { findings: output.findings, refused }
    }

    /// The findings of [`Scanner::search`], for inputs that reach no limit.
    pub fn scan(&self, input: &[u8]) -> Vec<Finding> {
        self.search(input).findings
    }

    pub fn rules(&self) -> &[Arc<ScanRule>] {
        &self.0.rules
    }

    /// One window, whole: for inputs that are one.
    pub(crate) fn look(&self, window: &[u8]) -> window::WindowFindings {
        window::look(&self.0, window)
    }
}

impl ScannerBuilder {
    /// Instead of the built-in rules.
    pub fn rules(mut self, rules: Vec<Arc<ScanRule>>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Registers the exact value of a secret; `name` is what findings call it.
    pub fn secret(mut self, name: &str, value: &[u8]) -> Result<Self, RegisteredSecretError> {
        self.forms.extend(registered_secrets::forms(name, value)?);
        Ok(self)
    }

    /// Findings get fingerprints.
    pub fn salt(mut self, salt: FingerprintSalt) -> Self {
        self.salt = Some(salt);
        self
    }

    pub fn build(self) -> Scanner {
        let rules = self.rules.unwrap_or_else(|| rules::built_in().to_vec());
        let (patterns, targets) = patterns(&rules, &self.forms);
        Scanner(Arc::new(ScanEngine {
            rules,
            forms: self.forms,
            keywords: KeywordSet::new(patterns),
            targets,
            salt: self.salt,
        }))
    }
}

fn patterns(rules: &[Arc<ScanRule>], forms: &[SecretForm]) -> (Vec<Vec<u8>>, Vec<Vec<KeywordTarget>>) {
    let mut announced: std::collections::BTreeMap<Vec<u8>, Vec<KeywordTarget>> =
        std::collections::BTreeMap::new();
    for (at, rule) in rules.iter().enumerate() {
        for keyword in &rule.keywords {
            announced
                .entry(keyword.to_ascii_lowercase().into_bytes())
                .or_default()
                .push(KeywordTarget::Rule(at));
        }
    }
    for (at, form) in forms.iter().enumerate() {
        announced.entry(form.announcement()).or_default().push(KeywordTarget::Form(at));
    }
    announced.into_iter().unzip()
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scanner({} rules, {} forms of secrets)", self.0.rules.len(), self.0.forms.len())
    }
}

impl std::fmt::Debug for ScannerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder({} forms of secrets)", self.forms.len())
    }
}
