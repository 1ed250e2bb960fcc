//! Circuit breaker: ends the session after five denials of similar calls (C-19).

use ringfence_types::{Call, FileCall, LandedEntry};

/// Number of similar denials that ends the session.
pub(crate) const ENOUGH: u32 = 5;

/// Longer texts are compared by this many characters from the start.
const LONGEST: usize = 400;

/// Of a landing with more paths, the first ones are compared.
const LANDED: usize = 100;

/// Denied calls of a session, with a count for each group of similar calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct CircuitBreaker {
    denied: Vec<(CallSimilarity, u32)>,
}

impl CircuitBreaker {
    /// Counts a denial of this call or of a similar one.
    pub(crate) fn count(&mut self, call: &Call) {
        let likeness = CallSimilarity::of(call);
        match self.denied.iter_mut().find(|(known, _)| known.is_similar(&likeness)) {
            Some((_, count)) => *count += 1,
            None => self.denied.push((likeness, 1)),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.denied.iter().any(|(_, count)| *count >= ENOUGH)
    }
}

/// The features by which two calls are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CallSimilarity {
    /// The program and its subcommand, or the operation and its path.
    head: [String; 2],
    text: Vec<char>,
}

impl CallSimilarity {
    fn of(call: &Call) -> Self {
        let words: Vec<String> = match call {
            Call::Exec(exec) => exec.argv.iter().map(|word| word.display()).collect(),
            Call::File(file) => vec![operation(file).to_owned(), file.path().display()],
            Call::Apply(patch) => patch.files.iter().map(|file| file.path.display()).collect(),
            Call::Land(landing) => {
                let path = |entry: &LandedEntry| entry.path.display();
                landing.entries.iter().take(LANDED).map(path).collect()
            }
            Call::Flow(flow) => vec!["connect".to_owned(), format!("{}:{}", flow.host, flow.port)],
            Call::Fetch(fetch) => vec!["fetch".to_owned(), fetch.url.clone()],
            Call::Tool(tool) => vec![tool.name.clone(), tool.input.clone()],
        };
        let program = words.first().map(|word| word.rsplit('/').next().unwrap_or(word).to_owned());
        let subcommand = words.iter().skip(1).find(|word| !word.starts_with('-')).cloned();
        Self {
            head: [program.unwrap_or_default(), subcommand.unwrap_or_default()],
            text: words.join(" ").chars().take(LONGEST).collect(),
        }
    }

    fn is_similar(&self, other: &Self) -> bool {
        let longest = self.text.len().max(other.text.len());
        self.head == other.head || distance(&self.text, &other.text) <= 2.max(longest / 5)
    }
}

fn operation(file: &FileCall) -> &'static str {
    match file {
        FileCall::Read { .. } => "read",
        FileCall::Write { .. } => "write",
        FileCall::List { .. } => "list",
        FileCall::Symlink { .. } => "symlink",
        FileCall::Stat { .. } => "stat",
        FileCall::Move { .. } => "move",
        FileCall::Remove { .. } => "remove",
        FileCall::Send { .. } => "send",
    }
}

/// Edit distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (above, left) in a.iter().zip(1..) {
        let mut diagonal = std::mem::replace(row.first_mut().unwrap_or(&mut 0), left);
        let mut before = left;
        for (letter, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let changed = diagonal + usize::from(above != letter);
            diagonal = *cell;
            *cell = changed.min(diagonal + 1).min(before + 1);
            before = *cell;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::{ByteString, ExecCall, NetMode, StandardInput};

    fn exec(words: &[&str]) -> Call {
        let argv = words.iter().map(|word| ByteString::from(*word)).collect();
        Call::Exec(ExecCall {
            argv,
            cwd: ByteString::from("/w"),
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        })
    }

    fn record_denial(calls: &[&[&str]]) -> bool {
        let mut breaker = CircuitBreaker::default();
        calls.iter().for_each(|words| breaker.count(&exec(words)));
        breaker.is_open()
    }

    #[test]
    fn c19_five_denials_of_the_like_open_it() {
        let same: [&[&str]; 5] = [&["git", "push", "--force"]; 5];
        assert!(record_denial(&same));
        assert!(!record_denial(&same[..4]));
        assert!(record_denial(&[
            &["git", "push"],
            &["git", "push", "--force"],
            &["/usr/bin/git", "-q", "push", "origin"],
            &["git", "push", "origin", "+main"],
            &["git", "push", "-f"],
        ]));
        let scripts: Vec<String> = (0..5).map(|n| format!("curl http://127.0.0.1/upload?n={n}")).collect();
        let scripts: Vec<[&str; 3]> = scripts.iter().map(|script| ["sh", "-c", script.as_str()]).collect();
        let scripts: Vec<&[&str]> = scripts.iter().map(|words| &words[..]).collect();
        assert!(record_denial(&scripts), "a letter more or less is the like");
    }

    #[test]
    fn different_things_are_counted_apart() {
        assert!(!record_denial(&[
            &["git", "push"],
            &["npm", "publish"],
            &["make", "install"],
            &["docker", "run", "x"],
            &["terraform", "apply"],
            &["kubectl", "delete", "pod"],
        ]));
    }

    #[test]
    fn the_distance_counts_letters() {
        let of = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!([of("", ""), of("", "ab"), of("kitten", "sitting"), of("abc", "abc")], [0, 2, 3, 0]);
    }
}
