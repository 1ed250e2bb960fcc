//! From what an agent hands in to a transaction that waits for an operator.

use ringfence_authz::{Action, Part, judge_proposal, open_for_a_proposal};
use ringfence_ledger::{AppendError, Event, Finding};
use ringfence_sandbox::files::{FileError, Place, Tree};
use ringfence_sandbox::survey::SurveyError;
use ringfence_scan::{ExactError, Scanner};
use ringfence_types::{
    Bytes, Call, Decision, Layer, Patch, PatchedFile, Principal, Profile, Refusal, RefusalCode, Root,
    TransactionId,
};
use zeroize::Zeroizing;

use super::diff::{self, FileDiff, Kind};
use super::secrets;
use super::vault::{Missing, Sides, Vault, VaultError, sha256};
use crate::facts::Machine;
use crate::leaks::judge_introduced;
use crate::pipeline::refusal_of;
use crate::rules::WorkspaceRules;
use crate::session::AgentSession;

/// The largest diff.
const DIFF: usize = 16 * 1024 * 1024;
/// The largest file, before or after.
const FILE: u64 = 25 * 1024 * 1024;
/// Everything before and after together.
const TOTAL: usize = 200 * 1024 * 1024;
/// The longest title.
const TITLE: usize = 1000;

/// What is handed in.
#[derive(Debug)]
pub struct Draft<'d> {
    pub input: Input<'d>,
    /// What the agent says about it.
    pub title: Option<String>,
    pub agent: Option<String>,
}

#[derive(Debug)]
pub enum Input<'d> {
    /// A unified diff.
    Diff(&'d [u8]),
    /// The whole of one file, relative to the workspace.
    File { path: Bytes, content: &'d [u8] },
}

/// A proposal that is in the ledger now.
#[derive(Debug)]
pub struct Proposed {
    pub transaction: TransactionId,
    pub patch: Patch,
    /// What looks like a secret and was not there before.
    pub findings: Vec<Finding>,
    /// What an operator will be asked about besides, one text for each.
    pub asks: Vec<String>,
}

/// Why a proposal could not be taken, though nobody said no.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    #[error("the workspace cannot be looked through")]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    File(FileError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("the proposal cannot be written to the ledger")]
    Ledger(#[from] AppendError),
    #[error("an id cannot be made")]
    Id(#[source] std::io::Error),
    #[error("a stored secret cannot be looked for")]
    Secret(#[from] ExactError),
}

impl ProposeError {
    /// The one thing that would change it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Vault(error) => error.hint(),
            Self::Ledger(error) => error.hint(),
            _ => None,
        }
    }
}

/// A no on the way, or a failure.
enum Stopped {
    Refused(Refusal),
    Failed(ProposeError),
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<E: Into<ProposeError>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl AgentSession<'_> {
    /// Takes changes in for an operator to look at. The workspace is read and not written, whatever the profile. A refusal
    /// is in the ledger.
    pub fn propose(&self, draft: &Draft<'_>) -> Result<Result<Proposed, Refusal>, ProposeError> {
        match self.take_in(draft) {
            Ok(proposed) => Ok(Ok(proposed)),
            Err(Stopped::Failed(error)) => Err(error),
            Err(Stopped::Refused(refusal)) => {
                let event = Event::Refused {
                    transaction: None,
                    session: Some(self.id.clone()),
                    call: None,
                    by: None,
                    refusal: self.leaks.refusal(&refusal),
                };
                let _receipt = self.runtime.ledger.append(&event)?;
                Ok(Err(refusal))
            }
        }
    }

    fn take_in(&self, draft: &Draft<'_>) -> Result<Proposed, Stopped> {
        let wanted = Wanted::of(&draft.input)?;
        wanted.iter().try_for_each(|wanted| self.refuse_named(&wanted.path))?;
        // Before anything is read: what may not be written may not be probed either.
        let asks = self.judge_paths(&wanted)?;
        let vault = Vault::new(&self.runtime.setup.state_dir);
        let scanner = secrets::scanner(vault.salt(Missing::Make)?, &self.secrets.all)?;
        let (files, findings) = scanned(&scanner, self.results(wanted)?);
        if let Some(refusal) = judge_introduced(&findings, &self.policy.leaks) {
            return Err(refusal.into());
        }
        let transaction = TransactionId::random()
            .map_err(|error| Stopped::Failed(ProposeError::Id(std::io::Error::other(error))))?;
        vault.keep(&transaction, &files)?;
        let patch = Patch { files: files.into_iter().map(|(file, _)| file).collect() };
        let event = Event::Proposed {
            transaction: transaction.clone(),
            session: self.id.clone(),
            workspace_id: self.workspace.id.clone(),
            workspace: Bytes::from(self.workspace.path.as_path()),
            patch: patch.clone(),
            title: draft.title.as_deref().map(|title| self.clean(title)),
            findings: findings.clone(),
            by: Principal::Agent {
                session: self.id.clone(),
                name: draft.agent.as_deref().map(|name| self.clean(name)),
            },
        };
        if let Err(error) = self.runtime.ledger.append(&event) {
            // Without a record nobody can ask for it.
            let _left = vault.forget(&transaction);
            return Err(error.into());
        }
        Ok(Proposed { transaction, patch, findings, asks })
    }

    /// A path is written down as it is; a value that the operator keeps must not be.
    fn refuse_named(&self, path: &Bytes) -> Result<(), Refusal> {
        let found = self.leaks.scanner().search(path.as_slice()).findings;
        let Some(rule) = found.iter().find_map(|found| found.rule.strip_prefix("secret/")) else {
            return Ok(());
        };
        Err(Refusal {
            code: RefusalCode::Secret,
            layer: Layer::Floor,
            rule: "secrets.in-path".to_owned(),
            message: format!("the name of a file has the value of the secret `{rule}` in it"),
            hint: Some("give the file another name".to_owned()),
        })
    }

    /// As the ledger may have it, and not endless.
    fn clean(&self, text: &str) -> String {
        self.leaks.text(text).chars().take(TITLE).collect()
    }

    fn judge_paths(&self, wanted: &[Wanted<'_>]) -> Result<Vec<String>, Refusal> {
        let files = wanted.iter().map(|wanted| PatchedFile {
            path: wanted.path.clone(),
            base: None,
            result: None,
            bytes: 0,
            secrets: Vec::new(),
        });
        let call = Call::Apply(Patch { files: files.collect() });
        let action = Action::new(call, self.all_roots());
        let facts = Machine::new(&self.runtime.setup);
        let judgement = judge_proposal(&self.policy, &action, &facts)?;
        if judgement.decision() == Decision::Deny {
            return Err(judgement.decisive().map_or_else(nothing, Part::refusal));
        }
        let asked = judgement.parts().iter().filter(|part| part.decision == Decision::Ask);
        Ok(asked.map(|part| format!("{}: {}", part.subject, part.reason)).collect())
    }

    /// Every file before and after, sorted by path.
    fn results(&self, wanted: Vec<Wanted<'_>>) -> Result<Vec<(Bytes, Sides)>, Stopped> {
        let rules = WorkspaceRules::new(&self.policy.rules.paths).own(&self.runtime.setup.own);
        let tree = Tree::open(&self.roots_of_a_proposal(), &rules)?;
        let mut files = Vec::with_capacity(wanted.len());
        let mut total = 0;
        for wanted in wanted {
            let base = match tree.place(&self.workspace.path.join(wanted.path.as_path()), FILE) {
                Ok(Place::File(content)) => Some(Zeroizing::new(content)),
                Ok(Place::Vacant { .. }) => None,
                Err(FileError::Refused { refusal, .. }) => {
                    return Err(about(&wanted.path, refusal_of(refusal)).into());
                }
                Err(error) => return Err(Stopped::Failed(ProposeError::File(error))),
            };
            let result = wanted.result(base.as_deref().map(Vec::as_slice))?.map(Zeroizing::new);
            let size = |side: &Option<Zeroizing<Vec<u8>>>| side.as_ref().map_or(0, |content| content.len());
            total += size(&base) + size(&result);
            if total > TOTAL || size(&result) as u64 > FILE {
                return Err(too_large().into());
            }
            files.push((wanted.path, Sides { base, result }));
        }
        Ok(files)
    }

    /// A proposal is judged as if it were written: only then is it known that it could be.
    fn roots_of_a_proposal(&self) -> Vec<Root> {
        let mut roots = self.all_roots();
        if self.policy.profile == Profile::Review {
            open_for_a_proposal(&mut roots);
        }
        roots
    }
}

type Files = Vec<(PatchedFile, Sides)>;

/// The digests of every file, and what the scanner says of it.
fn scanned(scanner: &Scanner, files: Vec<(Bytes, Sides)>) -> (Files, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut patched = Vec::with_capacity(files.len());
    for (path, sides) in files {
        let (base, result) =
            (sides.base.as_deref().map(Vec::as_slice), sides.result.as_deref().map(Vec::as_slice));
        let found = secrets::introduced(scanner, base, result);
        findings.extend(found.iter().map(|found| secrets::finding(&path, found)));
        let file = PatchedFile {
            path,
            base: base.map(sha256),
            result: result.map(sha256),
            bytes: result.map_or(0, |content| content.len() as u64),
            secrets: found.into_iter().map(|(introduced, _)| introduced).collect(),
        };
        patched.push((file, sides));
    }
    (patched, findings)
}

/// What becomes of one file.
struct Wanted<'d> {
    path: Bytes,
    how: How<'d>,
}

enum How<'d> {
    Diff(FileDiff<'d>),
    Whole(&'d [u8]),
}

impl<'d> Wanted<'d> {
    /// Sorted by path.
    fn of(input: &Input<'d>) -> Result<Vec<Self>, Refusal> {
        let mut wanted: Vec<Self> = match input {
            Input::File { path, content } => {
                if let Some(why) = diff::fault(path.as_slice()) {
                    return Err(malformed("path.form", format!("`{}`: {why}", path.display()))
                        .with_hint("name the file relative to the workspace, without `..`"));
                }
                vec![Self { path: path.clone(), how: How::Whole(content) }]
            }
            Input::Diff(diff) if diff.len() > DIFF => return Err(too_large()),
            Input::Diff(diff) => {
                let files = diff::read(diff).map_err(|error| {
                    malformed("diff.form", error.to_string()).with_hint_of(error.why.hint())
                })?;
                files.into_iter().map(|file| Self { path: file.path.clone(), how: How::Diff(file) }).collect()
            }
        };
        wanted.sort_by(|one, other| one.path.cmp(&other.path));
        let paths: std::collections::BTreeSet<&std::path::Path> =
            wanted.iter().map(|wanted| wanted.path.as_path()).collect();
        for wanted in &wanted {
            let above = wanted.path.as_path().ancestors().skip(1).find(|above| paths.contains(above));
            if let Some(above) = above {
                let (path, above) = (wanted.path.display(), Bytes::from(above).display());
                let message = format!("`{above}` cannot be a file and the directory of `{path}`");
                return Err(malformed("patch.nested", message).with_hint("propose them one after the other"));
            }
        }
        Ok(wanted)
    }

    fn result(&self, base: Option<&[u8]>) -> Result<Option<Vec<u8>>, Refusal> {
        let file = match &self.how {
            How::Whole(content) if base == Some(*content) => {
                return Err(malformed(
                    "patch.empty",
                    format!("`{}` is like that already", self.path.display()),
                ));
            }
            How::Whole(content) => return Ok(Some(content.to_vec())),
            How::Diff(file) => file,
        };
        match (file.kind, base) {
            (Kind::Create, Some(_)) => return Err(self.stale("it exists already")),
            (Kind::Modify | Kind::Delete, None) => return Err(self.stale("it does not exist")),
            _ => {}
        }
        let result = file.apply(base.unwrap_or_default()).map_err(|error| self.stale(&error.to_string()))?;
        Ok((file.kind != Kind::Delete).then_some(result))
    }

    fn stale(&self, why: &str) -> Refusal {
        Refusal {
            code: RefusalCode::Conflict,
            layer: Layer::Floor,
            rule: "diff.base".to_owned(),
            message: format!("the diff does not fit `{}`: {why}", self.path.display()),
            hint: Some(
                "make the diff against the files as they are now; nothing is searched for or merged"
                    .to_owned(),
            ),
        }
    }
}

trait WithHint {
    fn with_hint(self, hint: &str) -> Self;
    fn with_hint_of(self, hint: Option<&str>) -> Self;
}

impl WithHint for Refusal {
    fn with_hint(self, hint: &str) -> Self {
        self.with_hint_of(Some(hint))
    }

    fn with_hint_of(self, hint: Option<&str>) -> Self {
        Self { hint: hint.map(str::to_owned), ..self }
    }
}

fn malformed(rule: &str, message: String) -> Refusal {
    let layer = Layer::Floor;
    Refusal { code: RefusalCode::Malformed, layer, rule: rule.to_owned(), message, hint: None }
}

fn about(path: &Bytes, refusal: Refusal) -> Refusal {
    Refusal { message: format!("`{}` refused: {}", path.display(), refusal.message), ..refusal }
}

fn nothing() -> Refusal {
    malformed("patch.empty", "the proposal changes nothing".to_owned())
}

fn too_large() -> Refusal {
    let message = format!(
        "it is too large: at most {} MiB of diff, {} MiB for one file, {} MiB in all, before and after",
        DIFF >> 20,
        FILE >> 20,
        TOTAL >> 20
    );
    malformed("patch.size", message).with_hint("propose it in parts")
}
