//! Paths in a command line: each is judged from every directory that the command could run in.

use std::path::{Component, Path, PathBuf};

use ringfence_types::{ByteString, Decision, PathDecision, Risk, RuleId};

use super::arg::Arg;
use super::wildcard::{example, is_wild, matches, means};
use super::working_dirs::{fold, is_below, join};
use super::{CommandContext, CommandEvaluator};
use crate::decide::FilesystemView;
use crate::host_facts::PathKind;
use crate::judgement::{JudgementPart, PartKind};
use crate::paths::{PathIntent, judge_path};

/// Names that a pattern must not mean.
const KEPT: &[&str] = &[
    ".env",
    ".env.local",
    ".env.production",
    ".envrc",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".htpasswd",
    ".git-credentials",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "credentials.json",
    "service-account.json",
    "kubeconfig",
    "wallet.dat",
    "secring.gpg",
];

const READABLE: &[&[u8]] = &[b"/dev/null", b"/dev/stdin"];
/// Reading them never ends, or takes what the operator types at the terminal.
const UNENDING: &[&[u8]] = &[
    b"/dev/zero",
    b"/dev/full",
    b"/dev/random",
    b"/dev/urandom",
    b"/dev/tty",
    b"/dev/console",
    b"/dev/ptmx",
    b"/dev/stdout",
    b"/dev/stderr",
    b"/dev/fd/1",
    b"/dev/fd/2",
];
/// `PATH_MAX`: the kernel opens nothing longer.
const MAX_PATH: usize = 4096;
/// What is written to them changes nothing.
const WRITABLE: &[&[u8]] = &[b"/dev/null", b"/dev/stdout", b"/dev/stderr"];

impl CommandEvaluator<'_> {
    /// Judges an argument that names a file, and keeps the part.
    pub(super) fn path(&mut self, frame: &CommandContext, arg: Arg<'_>, intent: PathIntent) {
        if !self.is_listed() {
            return;
        }
        let part = match arg {
            Arg::Text(b"") | Arg::Unknown(_) => return,
            Arg::Text(text) | Arg::Home(text) | Arg::Glob { pattern: text, .. } if text.len() > MAX_PATH => {
                unsure(text, intent, RuleId::PathTooLong, "it is longer than a path can be")
            }
            Arg::Text(text) => self.path_part(frame, text, intent),
            Arg::Glob { prefix, pattern } => {
                let part = self.pattern_part(frame, prefix, pattern, intent);
                let reads = part.decision == Decision::Allow && intent != PathIntent::List;
                let linked = reads.then(|| self.linked_part(frame, pattern, intent));
                linked.flatten().unwrap_or(part)
            }
            Arg::Home(rest) => self.home_part(rest, intent),
        };
        self.push(frame, part);
    }

    /// A file that is read, unless `-` says that it is the standard input.
    pub(super) fn input_path(&mut self, frame: &CommandContext, arg: Arg<'_>) {
        if !arg.is("-") {
            self.path(frame, arg, PathIntent::Read);
        }
    }

    /// From the likely directory it counts in full; what another one would refuse becomes a question.
    pub(super) fn path_part(&self, frame: &CommandContext, text: &[u8], intent: PathIntent) -> JudgementPart {
        if text.starts_with(b"/") {
            return self.absolute_part(&join(Path::new("/"), text), intent);
        }
        let mut parts =
            frame.place.candidates().iter().map(|dir| self.absolute_part(&join(dir, text), intent));
        let Some(likely) = parts.next() else { return unknown_directory(text, intent) };
        parts.map(softened).fold(likely, stricter)
    }

    /// By its name and by where it leads: the stricter counts.
    fn absolute_part(&self, path: &Path, intent: PathIntent) -> JudgementPart {
        let folded = fold(path);
        // `..` after a link is another directory for the kernel than by name.
        let climbs = path.components().any(|component| component == Component::ParentDir);
        let part = match self.outside_part(&folded, intent) {
            // Where a device leads is the matter of the process that opens it.
            Some(part) if !climbs => return part,
            Some(part) => part,
            None => self.file_or_directory(&folded, intent),
        };
        let real = self.scene.facts.real_path(if climbs { path } else { &folded });
        if real == *folded {
            return part;
        }
        let real = fold(&real);
        let led = self.outside_part(&real, intent);
        stricter(part, led.unwrap_or_else(|| self.file_or_directory(&real, intent)))
    }

    /// Places outside the roots that the fence itself makes.
    fn outside_part(&self, path: &Path, intent: PathIntent) -> Option<JudgementPart> {
        let open = self.scene.permissions.view == FilesystemView::WholeMachine;
        if open || self.scene.permissions.roots.iter().any(|root| is_below(path, root.path.as_slice())) {
            return None;
        }
        let aspect = if intent == PathIntent::Write { PartKind::Write } else { PartKind::Read };
        let part = |rule| JudgementPart {
            path: Some(ByteString::from(path)),
            ..JudgementPart::new(aspect, ByteString::from(path).display(), rule)
        };
        let text = path.as_os_str().as_encoded_bytes();
        let numbered = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let descriptor = text.strip_prefix(b"/dev/fd/").is_some_and(numbered);
        let reads = matches!(intent, PathIntent::Read | PathIntent::List | PathIntent::Look);
        if reads && (UNENDING.contains(&text) || text.starts_with(b"/dev/pts/")) {
            let fix = "leave it out, or say yes to this one";
            let why = "to read it never ends, or takes what is typed at the terminal";
            return Some(part(RuleId::PathDevice).because(why).ask(Risk::Medium, fix));
        }
        let device = if reads { descriptor || READABLE.contains(&text) } else { WRITABLE.contains(&text) };
        if device {
            return Some(part(RuleId::PathDevice).because("a device of every process, which keeps nothing"));
        }
        path.starts_with("/tmp").then(|| {
            let fix = "use a directory of the workspace, or say yes to this one";
            part(RuleId::PathPrivateTmp)
                .because("it is in the private `/tmp` of the fence")
                .ask(Risk::Low, fix)
        })
    }

    /// Rules about names are about files: a directory that is named like a secret may be searched.
    fn file_or_directory(&self, path: &Path, intent: PathIntent) -> JudgementPart {
        let part = judge_path(self.scene, path, intent);
        let directory = || self.scene.facts.kind(path) == PathKind::Directory;
        if part.decision > Decision::Allow && intent == PathIntent::Read && directory() {
            return judge_path(self.scene, path, PathIntent::List);
        }
        part
    }

    fn home_part(&self, rest: &[u8], intent: PathIntent) -> JudgementPart {
        let Some(home) = &self.scene.policy.home else {
            return unsure(b"~", intent, RuleId::PathHome, "where the home directory is, is not known");
        };
        let below = rest.strip_prefix(b"/").unwrap_or(rest);
        self.absolute_part(&join(home.as_path(), below), intent)
    }

    /// What a pattern could expand to: its directory, a name that it surely matches, and the names that it could mean.
    /// A pattern that says nothing (`*`) is fine: files that must not be read are not there inside the fence.
    pub(super) fn pattern_part(
        &self,
        frame: &CommandContext,
        prefix: &[u8],
        pattern: &[u8],
        intent: PathIntent,
    ) -> JudgementPart {
        let dir = prefix
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(&b"."[..], |at| prefix.get(..=at).unwrap_or(b"/"));
        if climbs(pattern, intent) {
            let why = "it matches `..` in some shells, and so leads out";
            let sample = self.path_part(frame, &sample_path(pattern), intent);
            return stricter(sample, unsure(pattern, intent, RuleId::PathPattern, why));
        }
        let around = self.path_part(frame, dir, PathIntent::List);
        let sample = self.path_part(frame, &sample_path(pattern), intent);
        let part = stricter(around, sample);
        let last = pattern.rsplit(|byte| *byte == b'/').next().unwrap_or(pattern);
        let meant = || is_wild(last) && KEPT.iter().any(|name| means(last, name.as_bytes()));
        let named = JudgementPart { subject: ByteString::from(pattern).display(), ..part };
        if intent == PathIntent::List || named.decision > Decision::Allow {
            return named;
        }
        if meant() {
            return unsure(
                pattern,
                intent,
                RuleId::PathPattern,
                "it could match a file that must not be read",
            );
        }
        self.unless_kept(named, ByteString::from(example(last)).as_path())
    }

    /// Whether there is such a file now says nothing about what a pattern or a commit holds: names that hide a file unless
    /// it is public are a question there.
    pub(super) fn unless_kept(&self, part: JudgementPart, relative: &Path) -> JudgementPart {
        if self.scene.policy.rules.paths.judge(relative) == PathDecision::Open {
            return part;
        }
        let fix = "name the file itself, as it is in the workspace";
        let part = JudgementPart { rule: RuleId::PathPattern.into(), ..part };
        part.because("its name says that it may hold a key").ask(Risk::Medium, fix)
    }

    pub(super) fn is_missing(&self, path: &Path) -> bool {
        self.scene.facts.kind(path) == PathKind::Missing
    }
}

/// Whether a component could become `..`: dash, and bash before 5.2, let `.?` and `.*` match it. At the end of what is only
/// listed it shows names.
fn climbs(pattern: &[u8], intent: PathIntent) -> bool {
    let skipped = usize::from(intent == PathIntent::List);
    pattern
        .rsplit(|byte| *byte == b'/')
        .skip(skipped)
        .any(|component| component.starts_with(b".") && is_wild(component) && matches(component, b".."))
}

/// One path that the pattern matches. A component never becomes empty: that would make it another path.
fn sample_path(pattern: &[u8]) -> Vec<u8> {
    let mut sample = Vec::with_capacity(pattern.len());
    for (index, component) in pattern.split(|byte| *byte == b'/').enumerate() {
        if index > 0 {
            sample.push(b'/');
        }
        let name = if is_wild(component) { example(component) } else { component.to_vec() };
        let hollow = name.is_empty() && !component.is_empty();
        sample.extend_from_slice(if hollow { b"x" } else { &name });
    }
    sample
}

fn stricter(a: JudgementPart, b: JudgementPart) -> JudgementPart {
    if b.decision > a.decision { b } else { a }
}

fn softened(part: JudgementPart) -> JudgementPart {
    if part.decision != Decision::Deny {
        return part;
    }
    let fix = "use a path from the root of the workspace";
    let reason = format!("it may run in another directory, and from there: {}", part.reason);
    JudgementPart { reason: reason.into(), ..part }.ask(Risk::High, fix)
}

fn unknown_directory(text: &[u8], intent: PathIntent) -> JudgementPart {
    unsure(text, intent, RuleId::PathUnknownDirectory, "the directory that it is relative to is not known")
}

fn unsure(text: &[u8], intent: PathIntent, rule: RuleId, why: &'static str) -> JudgementPart {
    let aspect = if intent == PathIntent::Write { PartKind::Write } else { PartKind::Read };
    let fix = "name the file itself, from the root of the workspace";
    JudgementPart::new(aspect, super::arg::shorten(text), rule).because(why).ask(Risk::Medium, fix)
}

/// The path that an operand means from the likely directory.
pub(super) fn likely_path(frame: &CommandContext, text: &[u8]) -> Option<PathBuf> {
    frame.place.likely().map(|dir| fold(&join(dir, text)).into_owned())
}
