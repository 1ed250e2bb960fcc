//! Rules and registered secrets, built once: one search over every keyword and every form.

use std::sync::{Arc, OnceLock};

use crate::exact::{self, ExactError, Form};
use crate::finding::{Finding, Salt};
use crate::keywords::Keywords;
use crate::layer;
use crate::rules::{self, Rule};
use crate::stream::{Output, Stream};

/// Finds secrets. Cheap to clone, shared between threads.
#[derive(Clone)]
pub struct Scanner(pub(crate) Arc<Engine>);

pub(crate) struct Engine {
    pub(crate) rules: Vec<Arc<Rule>>,
    pub(crate) forms: Vec<Form>,
    pub(crate) keywords: Keywords,
    /// What each keyword announces.
    pub(crate) targets: Vec<Vec<Target>>,
    pub(crate) salt: Option<Salt>,
}

#[derive(Clone, Copy)]
pub(crate) enum Target {
    Rule(usize),
    Form(usize),
}

#[derive(Default)]
pub struct Builder {
    rules: Option<Vec<Arc<Rule>>>,
    forms: Vec<Form>,
    salt: Option<Salt>,
}

/// The input with `[redacted:RULE]` in place of each finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted {
    pub clean: Vec<u8>,
    pub findings: Vec<Finding>,
    /// As [`Stream::refused`].
    pub refused: u64,
}

/// What an input has in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Searched {
    pub findings: Vec<Finding>,
    /// As [`Stream::refused`].
    pub refused: u64,
}

impl Scanner {
    /// The built-in rules, no secret and no salt; built on first use.
    pub fn built_in() -> &'static Self {
        static SCANNER: OnceLock<Scanner> = OnceLock::new();
        SCANNER.get_or_init(|| Self::builder().build())
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn of_forms(forms: Vec<Form>, salt: Option<Salt>) -> Self {
        Builder { rules: None, forms, salt }.build()
    }

    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    pub fn redact(&self, input: &[u8]) -> Redacted {
        let mut output = Output::default();
        let mut stream = self.stream();
        stream.push(input, &mut output);
        let refused = stream.finish(&mut output);
        Redacted { clean: output.clean, findings: output.findings, refused }
    }

    /// What is in `input`, without making a clean copy.
    pub fn search(&self, input: &[u8]) -> Searched {
        let mut output = Output::findings_only();
        let mut stream = self.stream();
        stream.push(input, &mut output);
        let refused = stream.finish(&mut output);
        Searched { findings: output.findings, refused }
    }

    /// The findings of [`Scanner::search`], for inputs that reach no limit.
    pub fn scan(&self, input: &[u8]) -> Vec<Finding> {
        self.search(input).findings
    }

    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.0.rules
    }

    /// One window, whole: for inputs that are one.
    pub(crate) fn look(&self, window: &[u8]) -> layer::Looked {
        layer::look(&self.0, window)
    }
}

impl Builder {
    /// Instead of the built-in rules.
    pub fn rules(mut self, rules: Vec<Arc<Rule>>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Registers the exact value of a secret; `name` is what findings call it.
    pub fn secret(mut self, name: &str, value: &[u8]) -> Result<Self, ExactError> {
        self.forms.extend(exact::forms(name, value)?);
        Ok(self)
    }

    /// Findings get fingerprints.
    pub fn salt(mut self, salt: Salt) -> Self {
        self.salt = Some(salt);
        self
    }

    pub fn build(self) -> Scanner {
        let rules = self.rules.unwrap_or_else(|| rules::built_in().to_vec());
        let (patterns, targets) = patterns(&rules, &self.forms);
        Scanner(Arc::new(Engine {
            rules,
            forms: self.forms,
            keywords: Keywords::new(patterns),
            targets,
            salt: self.salt,
        }))
    }
}

fn patterns(rules: &[Arc<Rule>], forms: &[Form]) -> (Vec<Vec<u8>>, Vec<Vec<Target>>) {
    let mut announced: std::collections::BTreeMap<Vec<u8>, Vec<Target>> = std::collections::BTreeMap::new();
    for (at, rule) in rules.iter().enumerate() {
        for keyword in &rule.keywords {
            announced.entry(keyword.to_ascii_lowercase().into_bytes()).or_default().push(Target::Rule(at));
        }
    }
    for (at, form) in forms.iter().enumerate() {
        announced.entry(form.announcement()).or_default().push(Target::Form(at));
    }
    announced.into_iter().unzip()
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scanner({} rules, {} forms of secrets)", self.0.rules.len(), self.0.forms.len())
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder({} forms of secrets)", self.forms.len())
    }
}
