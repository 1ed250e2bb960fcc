//! What git prints out of its objects. A file that must not be read is masked inside the fence, and git still has its
//! content: `git log -p -- secrets` prints what `cat secrets/key` cannot.
//!
//! What was tracked once and is not tracked any more is not looked for: secrets in git's objects are a known limit.

use std::path::{Path, PathBuf};

use ringfence_types::{Access, ByteString, Decision, PathDecision, Risk, RuleId};

use super::arg::Arg;
use super::catalogue::git_subcommand;
use super::operands::likely_path;
use super::options::{Operand, OperandPosition, OptionEffect, ParsedArgs};
use super::rules::takes_value;
use super::{CommandContext, CommandEvaluator};
use crate::eval_context::EvalContext;
use crate::judgement::{JudgementPart, PartKind};
use crate::paths::{PathIntent, check_place, judge_path};

/// Long options that make `log` print contents.
const PATCHES: &[&str] = &[
    "--patch",
    "--patch-with-raw",
    "--patch-with-stat",
    "--unified",
    "--cc",
    "--dd",
    "--combined-all-paths",
    "--word-diff",
    "--color-words",
    "--binary",
    "--function-context",
    "--remerge-diff",
    "--diff-merges",
    // Lines with errors in their white space.
    "--check",
    // These tell whether a file has a text: with enough questions they tell all of it.
    "--ignore-matching-lines",
    "--find-object",
];
/// Short ones, alone or behind others.
const PATCH_LETTERS: &[u8] = b"puUWLcmSGI";
/// Options of `show` that add no revision to those that are named.
const ADD_NOTHING: &[&str] = &["--format", "--pretty", "--color", "--no-color", "--no-notes"];
/// Long options with which `diff` prints something else.
const SUMMARIES: &[&str] = &[
    "--stat",
    "--numstat",
    "--shortstat",
    "--dirstat",
    "--summary",
    "--compact-summary",
    "--name-only",
    "--name-status",
    "--raw",
    "--no-patch",
    "--quiet",
];

impl CommandEvaluator<'_> {
    /// Keeps a part about each tracked file that must not be read and that this command would print.
    pub(super) fn git_content(
        &mut self,
        frame: &CommandContext,
        name: &[u8],
        args: &[Arg<'_>],
        reading: &ParsedArgs<'_>,
    ) {
        if !self.is_listed() || !prints(name, args, reading) {
            return;
        }
        let operands = operands(name, args, reading);
        let mut specs = Pathspecs::of(self, frame, &operands);
        if names_a_tree(name, reading) {
            specs.origin = PathOrigin::AnyDirectory;
        }
        if names_an_object(name, reading) || follows(args) {
            specs.origin = PathOrigin::Nowhere;
        }
        for dir in frame.place.candidates().to_vec() {
            match self.hidden_in(&dir) {
                None => self.push(frame, unknown()),
                Some(hidden) => {
                    let shown = hidden.iter().filter(|path| specs.cover(path));
                    let parts: Vec<JudgementPart> =
                        shown.take(MOST).map(|path| self.printed(path, &specs)).collect();
                    parts.into_iter().for_each(|part| self.push(frame, part));
                }
            }
        }
    }

    /// Tracked files that must not be read.
    fn hidden_in(&mut self, dir: &Path) -> Option<Vec<PathBuf>> {
        let scene = self.scene;
        let hides = |path: &PathBuf| {
            may_be_hidden(scene, path) && judge_path(scene, path, PathIntent::Read).decision > Decision::Allow
        };
        let look = || Some(scene.facts.git_tracked(dir)?.into_iter().filter(hides).collect());
        self.tracked.entry(dir.to_owned()).or_insert_with(look).clone()
    }

    /// Where the command names what holds the file, the file is judged; where it names nothing, a person may say that it is not in
    /// what is shown.
    fn printed(&self, path: &Path, specs: &Pathspecs) -> JudgementPart {
        let part = judge_path(self.scene, path, PathIntent::Read);
        if specs.is_limited() && specs.name(path) {
            return part;
        }
        let roots = self.scene.permissions.roots.iter();
        let relative = roots.filter_map(|root| path.strip_prefix(root.path.as_path()).ok());
        let relative = relative.min_by_key(|relative| relative.as_os_str().len()).unwrap_or(path);
        let shown = ByteString::from(relative).display();
        let fix = match specs.origin {
            PathOrigin::Top => format!("leave it out: `-- . ':!{shown}'`, or say yes to this one"),
            PathOrigin::AnyDirectory => {
                format!(
                    "name branches or `HEAD~1` instead of digests and directories: `{shown}` may be in them"
                )
            }
            PathOrigin::Nowhere => format!(
                "write the digest of a commit as `DIGEST^{{commit}}`, and leave `--follow` out: git may print `{shown}` by another name"
            ),
        };
        let part = JudgementPart { rule: RuleId::GitContent.into(), ..part };
        part.because("git may print its content, which must not be read").ask(Risk::High, fix)
    }
}

/// Whether a path is worth a judgement: a repository may track a million files. Names count from the root that holds a file, and
/// the name of a root that begins with a dot counts too.
fn may_be_hidden(scene: &EvalContext<'_>, path: &Path) -> bool {
    let root_of = |relative: &Path| path.ancestors().nth(relative.components().count());
    let is_dotted =
        |root: &Path| root.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    match check_place(scene.permissions, path, Access::Read) {
        Ok(Some(relative)) => {
            scene.policy.rules.paths.judge(relative) != PathDecision::Open
                || root_of(relative).is_some_and(is_dotted)
        }
        Ok(None) => false,
        // What lies in a root that is closed. Outside of every root nothing is masked.
        Err(_) => scene.permissions.roots.iter().any(|root| path.starts_with(root.path.as_path())),
    }
}

/// Whether a path holds a root that is not itself in another.
fn holds_root(scene: &EvalContext<'_>, path: &Path) -> bool {
    let roots = || scene.permissions.roots.iter().map(|root| root.path.as_path());
    let is_inner = |root: &Path| roots().any(|other| other != root && root.starts_with(other));
    roots().any(|root| root.starts_with(path) && !is_inner(root))
}

/// One part a file: a repository of secrets needs no list of all of them.
const MOST: usize = 8;

/// The paths that a command limits itself to, absolute.
struct Pathspecs {
    included: Vec<PathBuf>,
    excluded: Vec<PathBuf>,
    /// Whether one of them may mean more than is understood here, so that nothing is limited.
    breadth: SpecBreadth,
    origin: PathOrigin,
}

/// Where git begins the paths that it compares with the pathspecs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathOrigin {
    Top,
    /// `git diff HEAD~1:services HEAD:services -- api` prints `services/api`.
    AnyDirectory,
    /// The content of a file that is named by its digest has no path, and `--follow` prints a file under its earlier name: pathspecs
    /// limit nothing.
    Nowhere,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SpecBreadth {
    Understood,
    Anything,
}

impl Pathspecs {
    fn of(judge: &CommandEvaluator<'_>, frame: &CommandContext, operands: &[Operand<'_>]) -> Self {
        let mut specs = Self {
            included: Vec::new(),
            excluded: Vec::new(),
            breadth: SpecBreadth::Understood,
            origin: PathOrigin::Top,
        };
        for operand in operands {
            if specs.add(judge, frame, *operand).is_none() {
                specs.breadth = SpecBreadth::Anything;
            }
        }
        specs
    }

    /// `None`: only git knows what it means.
    fn add(
        &mut self,
        judge: &CommandEvaluator<'_>,
        frame: &CommandContext,
        operand: Operand<'_>,
    ) -> Option<()> {
        let Arg::Text(text) = operand.arg else { return None };
        if let Some(path) = exclusion(text) {
            // What is excluded with a slash at its end is a directory: a file of that name is printed all the same.
            let path = Some(path).filter(|path| is_plain(path) && !path.ends_with(b"/"))?;
            self.excluded.push(likely_path(frame, path)?);
            return Some(());
        }
        let dashed = operand.side == OperandPosition::AfterDashes;
        let path = likely_path(frame, Some(text).filter(|text| is_plain(text))?)?;
        if !dashed && judge.is_missing(&path) {
            // A revision.
            return Some(());
        }
        if !dashed && may_be_revision(text) {
            return None;
        }
        // A whole root is no limit.
        let path = Some(path).filter(|path| !holds_root(judge.scene, path))?;
        self.included.push(path);
        Some(())
    }

    fn is_limited(&self) -> bool {
        self.breadth == SpecBreadth::Understood && !self.included.is_empty()
    }

    /// Whether the command names the file, or what holds it.
    fn name(&self, path: &Path) -> bool {
        self.included.iter().any(|spec| path.starts_with(spec))
    }

    fn cover(&self, path: &Path) -> bool {
        let below = |spec: &PathBuf| path.starts_with(spec);
        match self.origin {
            PathOrigin::Nowhere => true,
            // What is excluded at the top is another file in a directory.
            PathOrigin::AnyDirectory => {
                !self.is_limited() || self.included.iter().any(|spec| may_cover(spec, path))
            }
            PathOrigin::Top => (!self.is_limited() || self.name(path)) && !self.excluded.iter().any(below),
        }
    }
}

/// Whether a pathspec covers a file when git begins the path of the file at some directory above it. The top of the repository may
/// be any directory above both.
fn may_cover(spec: &Path, path: &Path) -> bool {
    spec.ancestors().skip(1).any(|top| {
        let relative = |path: &Path| path.strip_prefix(top).map(Path::to_owned).ok();
        let (Some(spec), Some(path)) = (relative(spec), relative(path)) else { return false };
        let mut rest = path.components();
        while !rest.as_path().starts_with(&spec) {
            if rest.next().is_none() {
                return false;
            }
        }
        true
    })
}

/// A path that git takes as it is written: without magic, wildcards and escapes.
fn is_plain(text: &[u8]) -> bool {
    !text.is_empty()
        && !text.starts_with(b":")
        && !text.starts_with(b"(")
        && !text.iter().any(|byte| b"*?[]\\".contains(byte))
}

/// Operands that may be paths. What stands before `--` is a revision, and git refuses a word that could be both; the pattern of
/// `grep` is neither.
fn operands<'a>(name: &[u8], args: &[Arg<'_>], reading: &ParsedArgs<'a>) -> Vec<Operand<'a>> {
    let dashes = args.iter().any(|arg| arg.is("--"));
    let pattern = usize::from(name == b"grep" && !has_pattern(reading));
    let may_be = |operand: &&Operand<'a>| !dashes || operand.side == OperandPosition::AfterDashes;
    reading.operands.iter().skip(pattern).filter(may_be).copied().collect()
}

/// Whether a command compares or searches a directory of a commit by itself: it has a name (`HEAD:services`) or is given by its
/// digest, which may be that of a commit as well.
fn names_a_tree(name: &[u8], reading: &ParsedArgs<'_>) -> bool {
    const OF_COMMITS: [&[u8]; 7] =
        [b"log", b"reflog", b"status", b"show", b"format-patch", b"stash", b"whatchanged"];
    let pattern = usize::from(name == b"grep" && !has_pattern(reading));
    let revisions = reading.operands.iter().skip(pattern);
    let mut before = revisions.filter(|operand| operand.side == OperandPosition::Before);
    !OF_COMMITS.contains(&name) && before.any(|operand| operand.arg.text().is_none_or(may_be_tree))
}

/// Whether a command may be given a file or a directory by its digest. `log` and its like take commits alone.
fn names_an_object(name: &[u8], reading: &ParsedArgs<'_>) -> bool {
    const OF_COMMITS: [&[u8]; 4] = [b"log", b"reflog", b"status", b"format-patch"];
    let pattern = usize::from(name == b"grep" && !has_pattern(reading));
    let revisions = reading.operands.iter().skip(pattern);
    let mut before = revisions.filter(|operand| operand.side == OperandPosition::Before);
    !OF_COMMITS.contains(&name) && before.any(|operand| operand.arg.text().is_none_or(may_be_object))
}

/// A digest, alone, peeled to something else than a commit, as the end of `v1-2-gDIGEST`, or before a path.
fn may_be_object(text: &[u8]) -> bool {
    let words = text.split(|byte| *byte == b'.').map(|word| word.strip_prefix(b"^").unwrap_or(word));
    let names = words.filter_map(|word| word.split(|byte| *byte == b':').next());
    names.into_iter().any(|name| {
        let described = name.windows(2).rposition(|pair| pair == b"-g").and_then(|at| name.get(at + 2..));
        [Some(name), described].into_iter().flatten().any(|name| {
            let peeled = name.get(digits_of(name)..).unwrap_or_default();
            digits_of(name) >= SHORTEST_DIGEST
                && (peeled.is_empty() || peeled.starts_with(b"^{") && peeled != b"^{commit}")
        })
    })
}

/// Git takes any beginning of a digest that is as long as this.
const SHORTEST_DIGEST: usize = 4;

fn digits_of(word: &[u8]) -> usize {
    word.iter().take_while(|byte| byte.is_ascii_hexdigit()).count()
}

/// Whether a file is shown under its earlier names too.
fn follows(args: &[Arg<'_>]) -> bool {
    args.iter().take_while(|arg| !arg.is("--")).any(|arg| is_one(arg.known_start(), &["--follow"]))
}

fn may_be_tree(text: &[u8]) -> bool {
    let is_digest = |word: &[u8]| {
        let digits = digits_of(word);
        digits >= SHORTEST_DIGEST && (digits == word.len() || word.get(digits) == Some(&b'^'))
    };
    text.contains(&b':')
        || text.split(|byte| *byte == b'.').any(|word| is_digest(word.strip_prefix(b"^").unwrap_or(word)))
}

fn has_pattern(reading: &ParsedArgs<'_>) -> bool {
    reading.has(|effect| matches!(effect, OptionEffect::Pattern | OptionEffect::PatternFile))
}

/// `:!x`, `:^x`, `:(exclude)x`.
fn exclusion(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b':', b'!' | b'^', rest @ ..] => Some(rest),
        _ => text.strip_prefix(b":(exclude)"),
    }
}

/// Whether a subcommand prints contents out of git's objects.
fn prints(name: &[u8], args: &[Arg<'_>], reading: &ParsedArgs<'_>) -> bool {
    let options = || args.iter().take_while(|arg| !arg.is("--")).map(|arg| arg.known_start());
    let patches = || options().any(|text| is_one(text, PATCHES) || is_short(text, PATCH_LETTERS));
    match name {
        b"log" | b"reflog" => patches(),
        b"status" => options().any(|text| is_one(text, &["--verbose"]) || is_short(text, b"v")),
        b"diff" => patches() || !is_summary(args),
        // What is about to be committed, and what is chosen piece by piece.
        b"commit" => {
            const SHOWS: &[&str] = &["--verbose", "--patch", "--interactive"];
            options().any(|text| is_one(text, SHOWS) || is_short(text, b"vp"))
        }
        b"add" | b"checkout" | b"restore" | b"reset" => {
            options().any(|text| is_one(text, &["--patch", "--interactive"]) || is_short(text, b"pi"))
        }
        // A file of a commit by its name was judged; an object by its digest is anything.
        b"show" => {
            let named = |operand: &Operand<'_>| {
                let is_named = |text: &[u8]| is_file_of_commit(text) && !may_be_object(text);
                operand.side == OperandPosition::Before && operand.arg.text().is_some_and(is_named)
            };
            let adds = || options().any(|text| text.starts_with(b"-") && !adds_nothing(text));
            reading.operands.is_empty() || !reading.operands.iter().all(named) || adds()
        }
        b"grep" => {
            let others = reading.operands.iter().skip(usize::from(!has_pattern(reading)));
            let revision = others.into_iter().any(|operand| operand.side != OperandPosition::AfterDashes);
            revision || options().any(|text| is_one(text, &["--cached"]))
        }
        _ => PRINTERS.split_ascii_whitespace().any(|known| known.as_bytes() == name),
    }
}

/// Whether an option of `show` leaves what is shown to the operands. `--all` does not.
fn adds_nothing(text: &[u8]) -> bool {
    let name = text.split(|byte| *byte == b'=').next().unwrap_or(text);
    ADD_NOTHING.iter().any(|known| known.as_bytes() == name)
}

/// Other subcommands that print contents. They are not on the list; a rule of the operator may allow them.
const PRINTERS: &str = "archive annotate blame bundle cat-file checkout-index diff-files diff-index diff-pairs diff-tree \
    fast-export format-patch merge-file merge-tree pack-objects range-diff rev-list stash unpack-file whatchanged";

/// Whether `diff` prints a summary and nothing else. What could be the value of another option asks for nothing.
fn is_summary(args: &[Arg<'_>]) -> bool {
    let program = git_subcommand(b"diff");
    let mut summary = false;
    let mut value = false;
    for arg in args.iter().take_while(|arg| !arg.is("--")) {
        let Some(text) = arg.text() else { return false };
        let negates = text.starts_with(b"--no-") && !UNRELATED.iter().any(|known| known.as_bytes() == text);
        if !value && negates {
            return false;
        }
        summary |= !value && (is_one(text, SUMMARIES) || text == b"-s");
        value = !value && text.len() > 1 && text.starts_with(b"-") && takes_value(Some(program), text);
    }
    summary
}

/// Of the options that take something back, those that take back no summary.
const UNRELATED: &[&str] = &[
    "--no-patch",
    "--no-color",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-abbrev",
    "--no-prefix",
    "--no-relative",
];

/// `HEAD:path`, `:path`, `:2:path`; not `:/words` or another pathspec, nor a colon in braces (`HEAD@{12:30}`). A range such as
/// `HEAD:..HEAD` begins like a file, and git prints a history for it.
fn is_file_of_commit(text: &[u8]) -> bool {
    if is_range(text) {
        return false;
    }
    match text {
        [b':', b'0'..=b'3', b':', path @ ..] | [b':', path @ ..] => {
            is_plain(path) && !path.starts_with(b"/") && !path.starts_with(b"!") && !path.starts_with(b"^")
        }
        _ => {
            let mut depth = 0_i32;
            for byte in text {
                depth += i32::from(*byte == b'{') - i32::from(*byte == b'}');
                match (*byte, depth) {
                    (b':', 0) => return true,
                    // A brace that was never opened: git reads such a word in its own way.
                    (_, ..0) => return false,
                    _ => {}
                }
            }
            false
        }
    }
}

/// Whether git may take the word for more than one revision.
fn is_range(text: &[u8]) -> bool {
    text.starts_with(b"^") || text.windows(2).any(|pair| pair == b"..")
}

/// Whether git may take a word before `--` for a revision although a file has that name: it looks for `HEAD^@`, `HEAD^!` and
/// `^HEAD` before it looks for files.
fn may_be_revision(text: &[u8]) -> bool {
    is_range(text)
        || text.iter().any(|byte| b"^~:".contains(byte))
        || text.windows(2).any(|pair| pair == b"@{")
}

/// git takes any beginning of a long option that is clear.
fn is_one(text: &[u8], names: &[&str]) -> bool {
    let option = text.split(|byte| *byte == b'=').next().unwrap_or(text);
    option.len() > 3
        && option.starts_with(b"--")
        && names.iter().any(|name| name.as_bytes().starts_with(option))
}

fn is_short(text: &[u8], letters: &[u8]) -> bool {
    match text {
        [b'-', b'-', ..] => false,
        [b'-', rest @ ..] => rest.iter().any(|letter| letters.contains(letter)),
        _ => false,
    }
}

/// A file of a commit whose name could begin in too many places.
pub(super) fn unknown_file() -> JudgementPart {
    JudgementPart::new(PartKind::Read, "a file of a commit", RuleId::GitContent)
        .because("where its name begins cannot be told")
        .ask(Risk::Medium, "name the commit with fewer colons, or say yes to this one")
}

fn unknown() -> JudgementPart {
    JudgementPart::new(PartKind::Read, "the files of the repository", RuleId::GitContent)
        .because("which files the repository tracks cannot be told")
        .ask(Risk::Medium, "look at the index of the repository, or say yes to this one")
}
