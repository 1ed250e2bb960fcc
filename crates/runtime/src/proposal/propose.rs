//! Takes a proposal from an agent and records it as a transaction that waits for an operator.

use ringfence_authz::{Action, JudgementPart, judge_proposal, open_for_a_proposal};
use ringfence_ledger::{AppendError, Event, RecordedFinding};
use ringfence_sandbox::files::{FileError, FileTree, NoFollowTarget};
use ringfence_sandbox::survey::SurveyError;
use ringfence_scan::{RegisteredSecretError, Scanner};
use ringfence_types::{
    ByteString, Call, Decision, Patch, PatchedFile, PolicyLayer, Principal, Profile, Refusal, RefusalCode,
    Root, RuleId, TransactionId,
};
use zeroize::Zeroizing;

use super::content_vault::{ContentVault, ContentVaultError, FileVersions, MissingKeyPolicy, sha256};
use super::diff::{self, DiffKind, FileDiff};
use super::introduced_secrets;
use crate::host_facts::LiveHost;
use crate::leaks::judge_introduced;
use crate::pipeline::refusal_of;
use crate::sandbox_rules::{HostFiles, SandboxRules};
use crate::session::AgentSession;

/// Limit of bytes in a diff.
const DIFF: usize = 16 * 1024 * 1024;
/// Limit of bytes in a file, before or after.
const FILE: u64 = 25 * 1024 * 1024;
/// Limit of all contents together.
const TOTAL: usize = 200 * 1024 * 1024;
/// Limit of characters in a title.
const TITLE: usize = 1000;

/// A submitted proposal.
#[derive(Debug)]
pub struct ProposalDraft<'d> {
    pub input: ProposalInput<'d>,
    /// The agent's claim about the proposal.
    pub title: Option<String>,
    pub agent: Option<String>,
}

#[derive(Debug)]
pub enum ProposalInput<'d> {
    /// A unified diff.
    Diff(&'d [u8]),
    /// The complete content of one file; the path is relative to the workspace.
    File { path: ByteString, content: &'d [u8] },
}

/// A recorded proposal.
#[derive(Debug)]
pub struct NewProposal {
    pub transaction: TransactionId,
    pub patch: Patch,
    /// Secrets that the proposal introduces.
    pub findings: Vec<RecordedFinding>,
    /// Further reasons for an approval, one text each.
    pub asks: Vec<String>,
}

/// Why a proposal failed without a refusal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    #[error("the workspace cannot be looked through")]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    File(FileError),
    #[error(transparent)]
    Vault(#[from] ContentVaultError),
    #[error("the proposal cannot be written to the ledger")]
    Ledger(#[from] AppendError),
    #[error("an id cannot be made")]
    Id(#[source] std::io::Error),
    #[error("a stored secret cannot be looked for")]
    Secret(#[from] RegisteredSecretError),
}

impl ProposeError {
    /// The next step for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Vault(error) => error.hint(),
            Self::Ledger(error) => error.hint(),
            _ => None,
        }
    }
}

/// A refusal or a failure.
enum ProposalStop {
    Refused(Refusal),
    Failed(ProposeError),
}

impl From<Refusal> for ProposalStop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<E: Into<ProposeError>> From<E> for ProposalStop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl AgentSession<'_> {
    /// Accepts a proposal for an operator. Reads the workspace and never writes it, whatever the profile. The
    /// ledger records a refusal.
    pub fn propose(&self, draft: &ProposalDraft<'_>) -> Result<Result<NewProposal, Refusal>, ProposeError> {
        match self.take_in(draft) {
            Ok(proposed) => Ok(Ok(proposed)),
            Err(ProposalStop::Failed(error)) => Err(error),
            Err(ProposalStop::Refused(refusal)) => {
                let event = Event::CallRefused {
                    transaction: None,
                    session: Some(self.id.clone()),
                    call: None,
                    call_origin: None,
                    refusal: self.leaks.refusal(&refusal),
                };
                let _receipt = self.runtime.ledger.append(&event)?;
                Ok(Err(refusal))
            }
        }
    }

    fn take_in(&self, draft: &ProposalDraft<'_>) -> Result<NewProposal, ProposalStop> {
        let wanted = FileTarget::of(&draft.input)?;
        wanted.iter().try_for_each(|wanted| self.refuse_named(&wanted.path))?;
        // Before any read: a path that may not be written may not be probed either.
        let asks = self.judge_paths(&wanted)?;
        let vault = ContentVault::new(&self.runtime.setup.state_dir);
        let scanner = introduced_secrets::scanner(vault.salt(MissingKeyPolicy::Make)?, &self.secrets.all)?;
        let (files, findings) = scanned(&scanner, self.results(wanted)?);
        if let Some(refusal) = judge_introduced(&findings, &self.policy.leaks) {
            return Err(refusal.into());
        }
        let transaction = TransactionId::random()
            .map_err(|error| ProposalStop::Failed(ProposeError::Id(std::io::Error::other(error))))?;
        vault.keep(&transaction, &files)?;
        let patch = Patch { files: files.into_iter().map(|(file, _)| file).collect() };
        let event = Event::ProposalCreated {
            transaction: transaction.clone(),
            session: self.id.clone(),
            workspace_id: self.workspace.id.clone(),
            workspace: ByteString::from(self.workspace.path.as_path()),
            patch: patch.clone(),
            title: draft.title.as_deref().map(|title| self.clean(title)),
            findings: findings.clone(),
            actor: Principal::Agent {
                session: self.id.clone(),
                name: draft
                    .agent
                    .as_deref()
                    .map(|name| ByteString::from(self.clean(name).as_str()).display()),
            },
        };
        if let Err(error) = self.runtime.ledger.append(&event) {
            // Without a record no operator can find the contents.
            let _left = vault.forget(&transaction);
            return Err(error.into());
        }
        Ok(NewProposal { transaction, patch, findings, asks })
    }

    /// Refuses a path that contains a stored secret, because records contain paths as they are.
    fn refuse_named(&self, path: &ByteString) -> Result<(), Refusal> {
        let found = self.leaks.scanner().search(path.as_slice()).findings;
        let Some(rule) = found.iter().find_map(|found| found.rule.strip_prefix("secret/")) else {
            return Ok(());
        };
        Err(Refusal {
            code: RefusalCode::Secret,
            layer: PolicyLayer::Floor,
            rule: RuleId::SecretsInPath.into(),
            message: format!("the name of a file has the value of the secret `{rule}` in it"),
            hint: Some("give the file another name".to_owned()),
        })
    }

    /// Redacts and shortens a text for the ledger.
    fn clean(&self, text: &str) -> String {
        self.leaks.text(text).chars().take(TITLE).collect()
    }

    fn judge_paths(&self, wanted: &[FileTarget<'_>]) -> Result<Vec<String>, Refusal> {
        let files = wanted.iter().map(|wanted| PatchedFile {
            path: wanted.path.clone(),
            base: None,
            result: None,
            bytes: 0,
            secrets: Vec::new(),
        });
        let call = Call::Apply(Patch { files: files.collect() });
        let action = Action::new(call, self.all_roots());
        let facts = LiveHost::new(&self.runtime.setup);
        let judgement = judge_proposal(&self.policy, &action, &facts)?;
        if judgement.decision() == Decision::Deny {
            return Err(judgement.decisive().map_or_else(nothing, JudgementPart::refusal));
        }
        let asked = judgement.parts().iter().filter(|part| part.decision == Decision::Ask);
        Ok(asked.map(|part| format!("{}: {}", part.subject, part.reason)).collect())
    }

    /// Every file before and after, sorted by path.
    fn results(&self, wanted: Vec<FileTarget<'_>>) -> Result<Vec<(ByteString, FileVersions)>, ProposalStop> {
        let rules = SandboxRules::new(&self.policy.rules.paths).host(HostFiles::of(&self.runtime.setup));
        let tree = FileTree::open(&self.roots_of_a_proposal(), &rules)?;
        let mut files = Vec::with_capacity(wanted.len());
        let mut total = 0;
        for wanted in wanted {
            let base = match tree.place(&self.workspace.path.join(wanted.path.as_path()), FILE) {
                Ok(NoFollowTarget::File(content)) => Some(Zeroizing::new(content)),
                Ok(NoFollowTarget::Vacant { .. }) => None,
                Err(FileError::Refused { refusal, .. }) => {
                    return Err(about(&wanted.path, refusal_of(refusal)).into());
                }
                Err(error) => return Err(ProposalStop::Failed(ProposeError::File(error))),
            };
            let result = wanted.result(base.as_deref().map(Vec::as_slice))?.map(Zeroizing::new);
            let size = |side: &Option<Zeroizing<Vec<u8>>>| side.as_ref().map_or(0, |content| content.len());
            total += size(&base) + size(&result);
            if total > TOTAL || size(&result) as u64 > FILE {
                return Err(too_large().into());
            }
            files.push((wanted.path, FileVersions { base, result }));
        }
        Ok(files)
    }

    /// The roots as if the profile allowed writing, so that the evaluation shows whether the proposal can be
    /// applied.
    fn roots_of_a_proposal(&self) -> Vec<Root> {
        let mut roots = self.all_roots();
        if self.policy.profile == Profile::Review {
            open_for_a_proposal(&mut roots);
        }
        roots
    }
}

type ProposedFiles = Vec<(PatchedFile, FileVersions)>;

/// The digests and findings of every file.
fn scanned(
    scanner: &Scanner,
    files: Vec<(ByteString, FileVersions)>,
) -> (ProposedFiles, Vec<RecordedFinding>) {
    let mut findings = Vec::new();
    let mut patched = Vec::with_capacity(files.len());
    for (path, sides) in files {
        let (base, result) =
            (sides.base.as_deref().map(Vec::as_slice), sides.result.as_deref().map(Vec::as_slice));
        let found = introduced_secrets::introduced(scanner, base, result);
        findings.extend(found.iter().map(|found| introduced_secrets::finding(&path, found)));
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

/// The requested change of one file.
struct FileTarget<'d> {
    path: ByteString,
    how: FileChangeKind<'d>,
}

enum FileChangeKind<'d> {
    Diff(FileDiff<'d>),
    Whole(&'d [u8]),
}

impl<'d> FileTarget<'d> {
    /// Sorted by path.
    fn of(input: &ProposalInput<'d>) -> Result<Vec<Self>, Refusal> {
        let mut wanted: Vec<Self> = match input {
            ProposalInput::File { path, content } => {
                if let Some(why) = diff::fault(path.as_slice()) {
                    return Err(malformed(RuleId::PathForm, format!("`{}`: {why}", path.display()))
                        .with_hint("name the file relative to the workspace, without `..`"));
                }
                vec![Self { path: path.clone(), how: FileChangeKind::Whole(content) }]
            }
            ProposalInput::Diff(diff) if diff.len() > DIFF => return Err(too_large()),
            ProposalInput::Diff(diff) => {
                let files = diff::read(diff).map_err(|error| {
                    malformed(RuleId::DiffMalformed, error.to_string()).with_hint_of(error.why.hint())
                })?;
                files
                    .into_iter()
                    .map(|file| Self { path: file.path.clone(), how: FileChangeKind::Diff(file) })
                    .collect()
            }
        };
        wanted.sort_by(|one, other| one.path.cmp(&other.path));
        let paths: std::collections::BTreeSet<&std::path::Path> =
            wanted.iter().map(|wanted| wanted.path.as_path()).collect();
        for wanted in &wanted {
            let above = wanted.path.as_path().ancestors().skip(1).find(|above| paths.contains(above));
            if let Some(above) = above {
                let (path, above) = (wanted.path.display(), ByteString::from(above).display());
                let message = format!("`{above}` cannot be a file and the directory of `{path}`");
                return Err(malformed(RuleId::PatchPathConflict, message)
                    .with_hint("propose them one after the other"));
            }
        }
        Ok(wanted)
    }

    fn result(&self, base: Option<&[u8]>) -> Result<Option<Vec<u8>>, Refusal> {
        let file = match &self.how {
            FileChangeKind::Whole(content) if base == Some(*content) => {
                return Err(malformed(
                    RuleId::PatchEmpty,
                    format!("`{}` is like that already", self.path.display()),
                ));
            }
            FileChangeKind::Whole(content) => return Ok(Some(content.to_vec())),
            FileChangeKind::Diff(file) => file,
        };
        match (file.kind, base) {
            (DiffKind::Create, Some(_)) => return Err(self.stale("it exists already")),
            (DiffKind::Modify | DiffKind::Delete, None) => return Err(self.stale("it does not exist")),
            _ => {}
        }
        let result = file.apply(base.unwrap_or_default()).map_err(|error| self.stale(&error.to_string()))?;
        Ok((file.kind != DiffKind::Delete).then_some(result))
    }

    fn stale(&self, why: &str) -> Refusal {
        Refusal {
            code: RefusalCode::Conflict,
            layer: PolicyLayer::Floor,
            rule: RuleId::DiffDoesNotApply.into(),
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

fn malformed(rule: RuleId, message: String) -> Refusal {
    let layer = PolicyLayer::Floor;
    Refusal { code: RefusalCode::Malformed, layer, rule: rule.into(), message, hint: None }
}

fn about(path: &ByteString, refusal: Refusal) -> Refusal {
    Refusal { message: format!("`{}` refused: {}", path.display(), refusal.message), ..refusal }
}

fn nothing() -> Refusal {
    malformed(RuleId::PatchEmpty, "the proposal changes nothing".to_owned())
}

fn too_large() -> Refusal {
    let message = format!(
        "it is too large: at most {} MiB of diff, {} MiB for one file, {} MiB in all, before and after",
        DIFF >> 20,
        FILE >> 20,
        TOTAL >> 20
    );
    malformed(RuleId::PatchSize, message).with_hint("propose it in parts")
}
