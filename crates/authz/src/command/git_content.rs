//! What git prints out of its objects. A file that must not be read is masked inside the fence, and git still has its
//! content: `git log -p -- secrets` prints what `cat secrets/key` cannot.
//!
//! What was tracked once and is not tracked any more is not looked for: secrets in git's objects are a known limit.

use std::path::{Path, PathBuf};

use ringfence_types::{Bytes, Decision, PathVerdict, Risk};

use super::arg::Arg;
use super::operands::likely_path;
use super::options::{Effect, Operand, Reading, Side};
use super::{Frame, Judge};
use crate::judgement::{Aspect, Part};
use crate::paths::{Intent, judge_path};

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
];
/// Short ones, alone or behind others.
const PATCH_LETTERS: &[u8] = b"puUWLcm";
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

impl Judge<'_> {
    /// Keeps a part about each tracked file that must not be read and that this command would print.
    pub(super) fn git_content(
        &mut self,
        frame: &Frame,
        name: &[u8],
        args: &[Arg<'_>],
        reading: &Reading<'_>,
    ) {
        if !self.is_listed() || !prints(name, args, reading) {
            return;
        }
        let operands = operands(name, args, reading);
        let specs = Pathspecs::of(self, frame, &operands);
        for dir in frame.place.candidates().to_vec() {
            match self.hidden_in(&dir) {
                None => self.push(frame, unknown()),
                Some(hidden) => {
                    let shown = hidden.iter().filter(|path| specs.cover(path));
                    let parts: Vec<Part> = shown.take(MOST).map(|path| self.printed(path, &specs)).collect();
                    parts.into_iter().for_each(|part| self.push(frame, part));
                }
            }
        }
    }

    /// Tracked files that must not be read.
    fn hidden_in(&mut self, dir: &Path) -> Option<Vec<PathBuf>> {
        let scene = self.scene;
        let hides = |path: &PathBuf| {
            let relative = path.strip_prefix(scene.workspace()).ok();
            let named =
                relative.is_some_and(|path| scene.policy.rules.paths.judge(path) != PathVerdict::Open);
            named && judge_path(scene, path, Intent::Read).decision > Decision::Allow
        };
        let look = || Some(scene.facts.git_tracked(dir)?.into_iter().filter(hides).collect());
        self.tracked.entry(dir.to_owned()).or_insert_with(look).clone()
    }

    /// Where the command names what holds the file, the file is judged; where it names nothing, a person may say that it is not in
    /// what is shown.
    fn printed(&self, path: &Path, specs: &Pathspecs) -> Part {
        let part = judge_path(self.scene, path, Intent::Read);
        if !specs.included.is_empty() {
            return part;
        }
        let relative = path.strip_prefix(self.scene.workspace()).unwrap_or(path);
        let shown = Bytes::from(relative).display();
        let fix = format!("leave it out: `-- . ':!{shown}'`, or say yes to this one");
        let part = Part { rule: "git.content".into(), ..part };
        part.because("git may print its content, which must not be read").ask(Risk::High, fix)
    }
}

/// One part a file: a repository of secrets needs no list of all of them.
const MOST: usize = 8;

/// The paths that a command limits itself to, absolute.
struct Pathspecs {
    included: Vec<PathBuf>,
    excluded: Vec<PathBuf>,
}

impl Pathspecs {
    fn of(judge: &Judge<'_>, frame: &Frame, operands: &[Operand<'_>]) -> Self {
        let mut specs = Self { included: Vec::new(), excluded: Vec::new() };
        for operand in operands {
            let Arg::Text(text) = operand.arg else { continue };
            let (list, path) = match exclusion(text) {
                Some(path) => (&mut specs.excluded, path),
                None => (&mut specs.included, text),
            };
            let dashed = operand.side == Side::AfterDashes;
            let path = likely_path(frame, path).filter(|path| dashed || !judge.is_missing(path));
            list.extend(path.filter(|path| path != judge.scene.workspace()));
        }
        specs
    }

    fn cover(&self, path: &Path) -> bool {
        let below = |spec: &PathBuf| path.starts_with(spec);
        (self.included.is_empty() || self.included.iter().any(below)) && !self.excluded.iter().any(below)
    }
}

/// Operands that may be paths. What stands before `--` is a revision, and git refuses a word that could be both; the pattern of
/// `grep` is neither.
fn operands<'a>(name: &[u8], args: &[Arg<'_>], reading: &Reading<'a>) -> Vec<Operand<'a>> {
    let dashes = args.iter().any(|arg| arg.is("--"));
    let pattern = usize::from(name == b"grep" && !has_pattern(reading));
    let may_be = |operand: &&Operand<'a>| !dashes || operand.side == Side::AfterDashes;
    reading.operands.iter().skip(pattern).filter(may_be).copied().collect()
}

fn has_pattern(reading: &Reading<'_>) -> bool {
    reading.has(|effect| matches!(effect, Effect::Pattern | Effect::PatternFile))
}

/// `:!x`, `:^x`, `:(exclude)x`.
fn exclusion(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b':', b'!' | b'^', rest @ ..] => Some(rest),
        _ => text.strip_prefix(b":(exclude)"),
    }
}

/// Whether a subcommand prints contents out of git's objects.
fn prints(name: &[u8], args: &[Arg<'_>], reading: &Reading<'_>) -> bool {
    let options = || args.iter().take_while(|arg| !arg.is("--")).filter_map(|arg| arg.text());
    let patches = || options().any(|text| is_one(text, PATCHES) || is_short(text, PATCH_LETTERS));
    match name {
        b"log" => patches(),
        b"diff" => patches() || !options().any(|text| is_one(text, SUMMARIES) || text == b"-s"),
        // A file of a commit by its name was judged; an object by its digest is anything.
        b"show" => {
            let named = |operand: &Operand<'_>| operand.arg.text().is_some_and(is_file_of_commit);
            reading.operands.is_empty() || !reading.operands.iter().all(named)
        }
        b"grep" => {
            let others = reading.operands.iter().skip(usize::from(!has_pattern(reading)));
            let revision = others.into_iter().any(|operand| operand.side != Side::AfterDashes);
            revision || options().any(|text| is_one(text, &["--cached"]))
        }
        _ => false,
    }
}

/// `HEAD:path`, `:path`; not `:/words`, nor a colon in braces (`HEAD@{12:30}`).
fn is_file_of_commit(text: &[u8]) -> bool {
    let mut depth = 0_i32;
    let colon = text.iter().any(|byte| {
        depth += i32::from(*byte == b'{') - i32::from(*byte == b'}');
        *byte == b':' && depth == 0
    });
    colon && !text.starts_with(b":/")
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

fn unknown() -> Part {
    Part::new(Aspect::Read, "the files of the repository", "git.content")
        .because("which files the repository tracks cannot be told")
        .ask(Risk::Medium, "look at the index of the repository, or say yes to this one")
}
