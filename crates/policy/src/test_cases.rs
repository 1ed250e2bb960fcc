//! Cases: actions with the decision that must come out. What `ringfence policy test` reads.
//!
//! A case that says less than its author meant would pass by accident, so everything unknown, empty or double is an
//! error with its place.

use std::fmt;
use std::ops::Range;

use ringfence_types::{ByteString, Decision, Profile, UnknownKeyword};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The cases of one file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseFile {
    pub cases: Vec<PolicyCase>,
}

/// One action and what must become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCase {
    pub subject: CaseSubject,
    pub expect: ExpectedDecision,
    /// `None`: whatever profile the cases are run under.
    pub profile: Option<Profile>,
    /// Relative to the workspace. `None`: the workspace itself.
    pub cwd: Option<ByteString>,
    /// Hosts that are allowed as by `--allow-host`.
    pub allow_hosts: Vec<String>,
    /// The name of the deciding rule starts with this.
    pub rule: Option<String>,
    pub why: Option<String>,
    pub at: TextPosition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseSubject {
    Shell(String),
    Argv(Vec<ByteString>),
    Read(ByteString),
    Write(ByteString),
    Url { url: String, method: String },
    Tool(String),
}

/// As an author would write it in the file, safe to show.
impl fmt::Display for CaseSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| ByteString::from(text).display();
        match self {
            Self::Shell(text) => write!(f, "shell: {}", shown(text)),
            Self::Argv(argv) => {
                let words: Vec<String> = argv.iter().map(|word| format!("{word:?}")).collect();
                write!(f, "argv: {}", words.join(" "))
            }
            Self::Read(path) => write!(f, "read: {}", path.display()),
            Self::Write(path) => write!(f, "write: {}", path.display()),
            Self::Url { url, method } => write!(f, "url: {} {}", shown(method), shown(url)),
            Self::Tool(name) => write!(f, "tool: {}", shown(name)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedDecision {
    Allow,
    Ask,
    Deny,
    /// Asked or denied: for cases where only a silent yes would be wrong.
    NotAllow,
}

impl ExpectedDecision {
    const WORDS: &[&str] = &["allow", "ask", "deny", "not-allow"];

    pub fn accepts(self, decision: Decision) -> bool {
        match self {
            Self::Allow => decision == Decision::Allow,
            Self::Ask => decision == Decision::Ask,
            Self::Deny => decision == Decision::Deny,
            Self::NotAllow => decision != Decision::Allow,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::NotAllow => "not-allow",
        }
    }
}

impl std::str::FromStr for ExpectedDecision {
    type Err = UnknownKeyword;

    fn from_str(word: &str) -> Result<Self, UnknownKeyword> {
        let all = [Self::Allow, Self::Ask, Self::Deny, Self::NotAllow];
        let found = all.into_iter().find(|expect| expect.word() == word);
        found.ok_or_else(|| UnknownKeyword::new("expectation", word, Self::WORDS))
    }
}

impl fmt::Display for ExpectedDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A place in the text, both from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct CaseError {
    pub at: TextPosition,
    pub problem: CaseProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseProblem {
    #[error("{}", ByteString::from(message.as_str()).display())]
    Syntax { message: String },
    #[error(transparent)]
    Word(#[from] UnknownKeyword),
    #[error("`{key}` takes {wanted}, not {found}")]
    Kind { key: &'static str, wanted: &'static str, found: &'static str },
    #[error("`{key}` is empty; leave it out or give it a value")]
    Empty { key: &'static str },
    #[error("the case has no `expect`; known: {}", ExpectedDecision::WORDS.join(", "))]
    NoExpectation,
    #[error("the case has no action; known: {}", SUBJECTS.join(", "))]
    NoSubject,
    #[error("the case has two actions, `{first}` and `{second}`; make them two cases")]
    TwoSubjects { first: &'static str, second: &'static str },
    #[error("`method` is only for `url`")]
    StrayMethod,
    #[error("the file has no `[[case]]`")]
    NoCase,
}

/// Reads a file of cases.
pub fn parse(text: &str) -> Result<CaseFile, CaseError> {
    let breaks: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let reader = CaseReader { text, breaks: &breaks };
    let whole = DeTable::parse(text).map_err(|error| syntax(reader, &error))?;
    let file = CaseFields::new(reader, &whole, FILE_KEYS)?;
    let defaults = CaseDefaults::read(&file)?;
    let tables = file.get("case").map_or(Ok(&[][..]), |cases| reader.array("case", cases))?;
    if tables.is_empty() {
        return Err(reader.error(0..0, CaseProblem::NoCase));
    }
    let cases: Result<Vec<PolicyCase>, CaseError> =
        tables.iter().map(|table| read_case(reader, table, &defaults)).collect();
    Ok(CaseFile { cases: cases? })
}

const FILE_KEYS: &[&str] = &["profile", "cwd", "allow_hosts", "case"];
const CASE_KEYS: &[&str] = &[
    "shell",
    "argv",
    "read",
    "write",
    "url",
    "tool",
    "method",
    "expect",
    "profile",
    "cwd",
    "allow_hosts",
    "rule",
    "why",
];
const SUBJECTS: &[&str] = &["shell", "argv", "read", "write", "url", "tool"];

/// What a case takes over where it says nothing itself.
struct CaseDefaults {
    profile: Option<Profile>,
    cwd: Option<ByteString>,
    allow_hosts: Vec<String>,
}

impl CaseDefaults {
    fn read(fields: &CaseFields<'_>) -> Result<Self, CaseError> {
        Ok(Self {
            profile: fields.word("profile")?,
            cwd: fields.filled("cwd")?.map(ByteString::from),
            allow_hosts: fields.strings("allow_hosts")?.unwrap_or_default(),
        })
    }
}

fn read_case(
    reader: CaseReader<'_>,
    table: &Spanned<DeValue<'_>>,
    defaults: &CaseDefaults,
) -> Result<PolicyCase, CaseError> {
    let Some(entries) = table.as_ref().as_table() else {
        return Err(reader.kind("case", "tables", table));
    };
    let fields = CaseFields::check(reader, entries, table.span(), CASE_KEYS)?;
    let own = CaseDefaults::read(&fields)?;
    let expect = fields.word("expect")?.ok_or_else(|| fields.error(CaseProblem::NoExpectation))?;
    Ok(PolicyCase {
        subject: read_subject(&fields)?,
        expect,
        profile: own.profile.or(defaults.profile),
        cwd: own.cwd.or_else(|| defaults.cwd.clone()),
        allow_hosts: if own.allow_hosts.is_empty() { defaults.allow_hosts.clone() } else { own.allow_hosts },
        rule: fields.filled("rule")?.map(str::to_owned),
        why: fields.filled("why")?.map(str::to_owned),
        at: reader.position(&table.span()),
    })
}

fn read_subject(fields: &CaseFields<'_>) -> Result<CaseSubject, CaseError> {
    let mut named = SUBJECTS.iter().copied().filter(|key| fields.get(key).is_some());
    let Some(first) = named.next() else { return Err(fields.error(CaseProblem::NoSubject)) };
    if let Some(second) = named.next() {
        return Err(fields.error_at(second, CaseProblem::TwoSubjects { first, second }));
    }
    if first != "url" && fields.get("method").is_some() {
        return Err(fields.error_at("method", CaseProblem::StrayMethod));
    }
    // An empty command, path or name is a case of its own, so that only its type is looked at.
    let text = || Ok(fields.string(first)?.unwrap_or_default().to_owned());
    Ok(match first {
        "shell" => CaseSubject::Shell(text()?),
        "argv" => {
            CaseSubject::Argv(fields.words("argv")?.iter().map(|word| ByteString::from(*word)).collect())
        }
        "read" => CaseSubject::Read(ByteString::from(text()?.as_str())),
        "write" => CaseSubject::Write(ByteString::from(text()?.as_str())),
        "url" => {
            CaseSubject::Url { url: text()?, method: fields.string("method")?.unwrap_or("GET").to_owned() }
        }
        _ => CaseSubject::Tool(text()?),
    })
}

/// Knows the text, for the places in errors.
#[derive(Clone, Copy)]
struct CaseReader<'a> {
    text: &'a str,
    /// Where its lines end.
    breaks: &'a [usize],
}

impl<'a> CaseReader<'a> {
    fn error(self, span: Range<usize>, problem: impl Into<CaseProblem>) -> CaseError {
        CaseError { at: self.position(&span), problem: problem.into() }
    }

    fn kind(self, key: &'static str, wanted: &'static str, found: &Spanned<DeValue<'_>>) -> CaseError {
        let problem = CaseProblem::Kind { key, wanted, found: found.as_ref().type_str() };
        self.error(found.span(), problem)
    }

    fn array<'v, 'i>(
        self,
        key: &'static str,
        value: &'v Spanned<DeValue<'i>>,
    ) -> Result<&'v [Spanned<DeValue<'i>>], CaseError> {
        let array = value.as_ref().as_array().ok_or_else(|| self.kind(key, "a list", value))?;
        Ok(array)
    }

    fn position(self, span: &Range<usize>) -> TextPosition {
        let line = self.breaks.partition_point(|end| *end < span.start);
        let start = line.checked_sub(1).and_then(|above| self.breaks.get(above)).map_or(0, |end| end + 1);
        let column = self.text.get(start..span.start).map_or(0, |before| before.chars().count());
        let from_one = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
        TextPosition { line: from_one(line), column: from_one(column) }
    }
}

/// A table of which every key is known.
struct CaseFields<'a> {
    reader: CaseReader<'a>,
    entries: &'a DeTable<'a>,
    span: Range<usize>,
}

impl<'a> CaseFields<'a> {
    fn new(
        reader: CaseReader<'a>,
        table: &'a Spanned<DeTable<'a>>,
        known: &'static [&'static str],
    ) -> Result<Self, CaseError> {
        Self::check(reader, table.as_ref(), table.span(), known)
    }

    fn check(
        reader: CaseReader<'a>,
        entries: &'a DeTable<'a>,
        span: Range<usize>,
        known: &'static [&'static str],
    ) -> Result<Self, CaseError> {
        match entries.keys().find(|key| !known.contains(&key.as_ref().as_ref())) {
            Some(key) => Err(reader.error(key.span(), UnknownKeyword::new("key", key.as_ref(), known))),
            None => Ok(Self { reader, entries, span }),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries.get(key)
    }

    fn string(&self, key: &'static str) -> Result<Option<&'a str>, CaseError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_ref().as_str().map(Some).ok_or_else(|| self.reader.kind(key, "a string", value))
    }

    fn filled(&self, key: &'static str) -> Result<Option<&'a str>, CaseError> {
        match self.string(key)? {
            Some("") => Err(self.error_at(key, CaseProblem::Empty { key })),
            filled => Ok(filled),
        }
    }

    fn word<T: std::str::FromStr<Err = UnknownKeyword>>(
        &self,
        key: &'static str,
    ) -> Result<Option<T>, CaseError> {
        let word = self.string(key)?.map(str::parse);
        word.transpose().map_err(|unknown| self.error_at(key, unknown))
    }

    fn words(&self, key: &'static str) -> Result<Vec<&'a str>, CaseError> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let words = self.reader.array(key, value)?;
        let string = |word: &'a Spanned<DeValue<'a>>| {
            word.as_ref().as_str().ok_or_else(|| self.reader.kind(key, "strings", word))
        };
        words.iter().map(string).collect()
    }

    /// A list that says nothing is neither "any" nor "none" (C-27).
    fn strings(&self, key: &'static str) -> Result<Option<Vec<String>>, CaseError> {
        if self.get(key).is_none() {
            return Ok(None);
        }
        let words = self.words(key)?;
        if words.is_empty() {
            return Err(self.error_at(key, CaseProblem::Empty { key }));
        }
        Ok(Some(words.into_iter().map(str::to_owned).collect()))
    }

    fn error(&self, problem: CaseProblem) -> CaseError {
        self.reader.error(self.span.clone(), problem)
    }

    fn error_at(&self, key: &str, problem: impl Into<CaseProblem>) -> CaseError {
        let span = self.get(key).map_or(self.span.clone(), Spanned::span);
        self.reader.error(span, problem)
    }
}

fn syntax(reader: CaseReader<'_>, error: &toml::de::Error) -> CaseError {
    let message = error.message().to_owned();
    reader.error(error.span().unwrap_or(0..0), CaseProblem::Syntax { message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> PolicyCase {
        let mut cases = parse(text).unwrap().cases;
        assert_eq!(cases.len(), 1);
        cases.remove(0)
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_case_has_an_action_and_an_expectation() {
        let case = only("[[case]]\nshell = \"git status && ls\"\nexpect = \"allow\"\n");
        assert_eq!(case.subject, CaseSubject::Shell("git status && ls".to_owned()));
        assert_eq!((case.expect, case.profile, case.cwd), (ExpectedDecision::Allow, None, None));
        assert_eq!(case.at, TextPosition { line: 1, column: 1 });
    }

    #[test]
    fn every_kind_of_action() {
        let of = |line: &str| only(&format!("[[case]]\n{line}\nexpect = \"not-allow\"")).subject;
        let argv = CaseSubject::Argv(vec![ByteString::from("ls"), ByteString::from("a\0b")]);
        assert_eq!(of(r#"argv = ["ls", "a\u0000b"]"#), argv);
        assert_eq!(of("read = 'x'"), CaseSubject::Read(ByteString::from("x")));
        assert_eq!(of("write = 'x'"), CaseSubject::Write(ByteString::from("x")));
        assert_eq!(of("tool = 'x'"), CaseSubject::Tool("x".to_owned()));
        let url = |method: &str| CaseSubject::Url { url: "https://h/".to_owned(), method: method.to_owned() };
        assert_eq!(of("url = 'https://h/'"), url("GET"));
        assert_eq!(of("url = 'https://h/'\nmethod = 'POST'"), url("POST"));
    }

    #[test]
    fn a_case_overrides_the_defaults_of_its_file() {
        let file = parse(
            "profile = 'guarded'\ncwd = 'a'\nallow_hosts = ['h:443']\n\
             [[case]]\nshell = 'ls'\nexpect = 'allow'\n\
             [[case]]\nshell = 'ls'\nexpect = 'ask'\nprofile = 'strict'\ncwd = 'b'\nallow_hosts = ['i']\n",
        )
        .unwrap();
        let of = |case: &PolicyCase| (case.profile, case.cwd.clone(), case.allow_hosts.clone());
        let given = |profile, cwd: &str, host: &str| {
            (Some(profile), Some(ByteString::from(cwd)), vec![host.to_owned()])
        };
        assert_eq!(of(&file.cases[0]), given(Profile::Guarded, "a", "h:443"));
        assert_eq!(of(&file.cases[1]), given(Profile::Strict, "b", "i"));
    }

    #[test]
    fn not_allow_accepts_a_question_and_a_no() {
        let accepted = |expect: ExpectedDecision| {
            [Decision::Allow, Decision::Ask, Decision::Deny].map(|decision| expect.accepts(decision))
        };
        assert_eq!(accepted(ExpectedDecision::NotAllow), [false, true, true]);
        assert_eq!(accepted(ExpectedDecision::Allow), [true, false, false]);
        assert_eq!(accepted(ExpectedDecision::Ask), [false, true, false]);
        assert_eq!(accepted(ExpectedDecision::Deny), [false, false, true]);
    }

    #[test]
    fn unknown_keys_and_words_are_errors_with_their_place() {
        let key = error("[[case]]\n  shel = 'ls'\nexpect = 'allow'");
        assert!(key.starts_with("2:3: unknown key `shel` (did you mean `shell`?)"), "{key}");
        let top = error("profil = 'guarded'\n[[case]]\nshell = 'ls'\nexpect = 'allow'");
        assert!(top.starts_with("1:1: unknown key `profil` (did you mean `profile`?)"), "{top}");
        let word = error("[[case]]\nshell = 'ls'\nexpect = 'alow'");
        assert!(word.starts_with("3:10: unknown expectation `alow` (did you mean `allow`?)"), "{word}");
        let profile = error("[[case]]\nshell = 'ls'\nexpect = 'allow'\nprofile = 'stict'");
        assert!(profile.starts_with("4:11: unknown profile `stict` (did you mean `strict`?)"), "{profile}");
    }

    #[test]
    fn what_a_case_needs() {
        assert_eq!(
            error("[[case]]\nshell = 'ls'"),
            "1:1: the case has no `expect`; known: allow, ask, deny, not-allow"
        );
        assert!(
            error("\n[[case]]\nexpect = 'allow'").starts_with("2:1: the case has no action; known: shell")
        );
        assert_eq!(
            error("[[case]]\nexpect = 'allow'\nread = 'x'\nshell = 'ls'"),
            "3:8: the case has two actions, `shell` and `read`; make them two cases"
        );
        assert_eq!(
            error("[[case]]\nexpect = 'allow'\nread = 'x'\nmethod = 'GET'"),
            "4:10: `method` is only for `url`"
        );
        assert_eq!(error("profile = 'guarded'"), "1:1: the file has no `[[case]]`");
        assert_eq!(error(""), "1:1: the file has no `[[case]]`");
        assert_eq!(error("case = []"), "1:1: the file has no `[[case]]`");
    }

    #[test]
    fn wrong_types_and_empty_values_are_errors() {
        assert_eq!(
            error("[[case]]\nexpect = 'allow'\nargv = ['ls', 1]"),
            "3:15: `argv` takes strings, not integer"
        );
        assert_eq!(error("[[case]]\nexpect = 'allow'\nargv = 'ls'"), "3:8: `argv` takes a list, not string");
        assert_eq!(error("case = [1]"), "1:9: `case` takes tables, not integer");
        assert_eq!(error("case = 1"), "1:8: `case` takes a list, not integer");
        for line in ["allow_hosts = []", "cwd = ''", "rule = ''", "why = ''"] {
            let message = error(&format!("[[case]]\nexpect = 'allow'\nshell = 'ls'\n{line}"));
            assert!(message.contains("is empty; leave it out or give it a value"), "{message}");
        }
    }

    #[test]
    fn bad_toml_is_an_error_with_its_place() {
        let message = error("[[case]]\nexpect = 'allow\n");
        assert!(message.starts_with("2:"), "{message}");
        let twice = error("[[case]]\nexpect = 'allow'\nexpect = 'ask'\nshell = 'ls'");
        assert!(twice.starts_with("3:1: "), "{twice}");
        let inside = "[[case]]\nshell = '\u{e9}\u{e9}' x";
        assert!(error(inside).starts_with("2:14: "), "{}", error(inside));
    }

    #[test]
    fn subjects_are_safe_to_show() {
        let case = only("[[case]]\nshell = \"ls\\u001b[2J\\r\"\nexpect = 'deny'");
        assert_eq!(case.subject.to_string(), "shell: ls\\u{1b}[2J\\r");
    }

    /// Neither depth nor size ends the program that reads them: the thread has little stack.
    #[test]
    fn bad_case_files_are_errors() {
        const MANY: usize = 100_000;
        const MEGABYTE: usize = 1 << 20;
        for text in [
            format!("[[case]]\nargv = {}", "[".repeat(MANY)),
            format!("[[case]]\nargv = {}{}", "[".repeat(MANY), "]".repeat(MANY)),
            format!("x = {}{}", "{a=".repeat(MANY), "}".repeat(MANY)),
            format!("{}a = 1", "a.".repeat(MANY)),
            format!("[{}a]", "a.".repeat(MANY)),
            "[[case]]\n".repeat(MANY),
            "[".repeat(MEGABYTE),
            "\"".repeat(MEGABYTE),
            "a".repeat(MEGABYTE),
            "\u{feff}".to_owned(),
            "\0".to_owned(),
        ] {
            let start: String = text.chars().take(30).collect();
            let reader = std::thread::Builder::new().stack_size(512 * 1024);
            let reader = reader.spawn(move || parse(&text).is_err()).unwrap();
            assert!(reader.join().unwrap(), "{start:?}");
        }
    }
}
