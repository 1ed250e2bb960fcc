use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_authz::{Grant, Permissions, View as GrantedView};
use ringfence_egress::Ca;
use ringfence_ledger::{AppendError, Bound as Approved, Event, Receipt};
use ringfence_sandbox::survey::SurveyError;
use ringfence_sandbox::{Doors, Session as Sandbox, Spec, StartError, Unsupported, View};
use ringfence_types::{
    Access, Backend, Bytes, Call, Layer, Level, NetMode, Posture, Refusal, RefusalCode, TransactionId,
};

use super::authenticated::closed;
use super::decided::chain;
use super::held;
use super::running::Running;
use super::settled::{Settled, Settling};
use crate::approval::Held;
use crate::approval::binding::{changed, noun};
use crate::network::{Network, NetworkError, bundle};
use crate::rules::WorkspaceRules;
use crate::secrets::SecretStore;
use crate::session::{AgentSession, Bound, Fence};

/// Allowed and written down: the only state that can launch.
#[derive(Debug)]
pub struct Admitted {
    grant: Grant,
    receipt: Receipt,
    transaction: TransactionId,
    held: Option<Held>,
    /// What a person said yes to, of what can change.
    bound: Vec<Approved>,
}

impl Admitted {
    pub(super) fn new(
        (grant, receipt): (Grant, Receipt),
        transaction: TransactionId,
        held: Option<Held>,
        bound: Vec<Approved>,
    ) -> Self {
        Self { grant, receipt, transaction, held, bound }
    }

    /// Starts the session's sandbox if it does not run yet. A file call needs none.
    pub(super) fn launch(self, session: &mut AgentSession<'_>) -> Result<Running, Settled> {
        debug_assert!(self.receipt.seq() > 0);
        let fingerprint = self.grant.action().fingerprint().clone();
        let settling = Settling { transaction: self.transaction, fingerprint, held: self.held };
        let executes = matches!(self.grant.action().call(), Call::Exec(_));
        if executes && let Err(refusal) = session.record_releases(&settling.transaction) {
            return Err(settling.refused(session, refusal));
        }
        let mut fence = None;
        if executes {
            // When it is due again does not matter: a command runs now.
            let _due = session.rest();
            match standing(session, self.grant.permissions()) {
                Ok(standing) => fence = Some(standing),
                Err(NotStarted::Network(error)) => {
                    let hint = Some(
                        "use `--net none`, or look for what is missing in `ringfence doctor`".to_owned(),
                    );
                    return Err(settling.failed(session, chain(&error), hint));
                }
                Err(NotStarted::Refused(refusal)) => return Err(settling.refused(session, refusal)),
                Err(NotStarted::Failed(error)) => {
                    if let Some(refusal) = refusal_of(&error) {
                        return Err(settling.refused(session, refusal));
                    }
                    let hint = error.hint();
                    return Err(settling.failed(session, chain(&error), hint));
                }
            }
        }
        // Making the fence takes long enough to replace what was approved.
        if let Some(changed) = changed(&self.bound) {
            let refusal = replaced(changed);
            return Err(settling.refused(session, refusal));
        }
        Ok(Running { grant: self.grant, settling, fence })
    }
}

impl Admitted {
    /// Leaves the doing to somebody else. That is all that is known of it, and so it is what is written down.
    pub(super) fn leave(
        self,
        session: &mut AgentSession<'_>,
        to: &str,
    ) -> Result<TransactionId, AppendError> {
        let event = Event::Settled {
            transaction: self.transaction.clone(),
            session: session.id.clone(),
            outcome: None,
            failure: None,
            left_to: Some(to.to_owned()),
            notes: Vec::new(),
        };
        session.append(vec![event]).map(|_receipts| self.transaction)
    }
}

fn replaced(changed: &Approved) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Call,
        rule: "approval.superseded".to_owned(),
        message: format!(
            "{} `{}` is not what it was when the answer was given, so nothing was started",
            noun(changed.what),
            changed.path.display()
        ),
        hint: Some("ask again, and let nothing change it meanwhile".to_owned()),
    }
}

enum NotStarted {
    Refused(Refusal),
    Failed(StartError),
    Network(NetworkError),
}

/// The fence of a session, for one call. While a call has it, it is not taken down because nothing ran in it for long.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) filtered: bool,
}

/// The sandbox of the session, started if it does not run yet. Of two calls that come first, one waits for the other.
fn standing(session: &AgentSession<'_>, permissions: &Permissions) -> Result<Standing, NotStarted> {
    let mut fence = session.common.fence();
    if session.common.is_closed() {
        return Err(NotStarted::Refused(closed()));
    }
    if let Some(sandbox) = &fence.sandbox {
        return Ok(Standing { sandbox: Arc::clone(sandbox), filtered: fence.network.is_some() });
    }
    let (Started { sandbox, passed_over }, network) = start(session, permissions)?;
    held::record(session, &sandbox);
    session.common.tell(sandbox.notes().iter().cloned());
    let standing = Standing { sandbox: Arc::new(sandbox), filtered: network.is_some() };
    *fence = Fence { network, sandbox: Some(Arc::clone(&standing.sandbox)), passed_over, told: false };
    drop(fence);
    session.container_started();
    Ok(standing)
}

/// Strongest first. `container` is chosen by policy and `none` by flag, never as a fallback.
const LADDER: [Backend; 3] = [Backend::Native, Backend::Bubblewrap, Backend::Landlock];

/// How often a start is made again that failed for want of something, and the pause before it.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// A launcher that said nothing for long is not waited for again.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sandbox, and the stronger backends that could not be used, each with the reason.
struct Started {
    sandbox: Sandbox,
    passed_over: Vec<String>,
}

fn start(
    session: &AgentSession<'_>,
    permissions: &Permissions,
) -> Result<(Started, Option<Network>), NotStarted> {
    if permissions.net != NetMode::Filtered {
        return Ok((start_sandbox(session, permissions, None)?, None));
    }
    let ca = Arc::new(Ca::new().map_err(|error| NotStarted::Network(error.into()))?);
    let mut started = start_sandbox(session, permissions, Some(&ca))?;
    // Before anything runs in it: the first connection finds somebody to answer.
    let doors = started.sandbox.take_doors().ok_or(NotStarted::Network(NetworkError::NoDoors))?;
    let Doors { proxy, transparent, dns, dns_stream } = doors;
    let doors = ringfence_egress::Doors { proxy, transparent, dns, dns_stream };
    let hold = started.sandbox.hold().clone();
    let network = Network::open(session, (doors, hold), ca).map_err(NotStarted::Network)?;
    Ok((started, Some(network)))
}

fn start_sandbox(
    session: &AgentSession<'_>,
    permissions: &Permissions,
    ca: Option<&Ca>,
) -> Result<Started, NotStarted> {
    let wanted = session.policy.backend;
    let candidates = wanted.as_ref().map_or(&LADDER[..], std::slice::from_ref);
    let mut tried: Vec<String> = Vec::new();
    let mut last = None;
    let rules = WorkspaceRules::new(&session.policy.rules.paths)
        .worked_in(&session.worked_in)
        .own(&session.runtime.setup.own);
    for backend in candidates {
        if let Some(refusal) = replaceable(&session.runtime.setup.own, permissions, *backend) {
            if wanted.is_some() {
                return Err(NotStarted::Refused(refusal));
            }
            tried.push(refusal.message);
            continue;
        }
        let mut spec = spec(session, permissions, *backend);
        spec.files.extend(ca.map(bundle));
        match start_steadily(|| Sandbox::start_from(&spec, &rules, &session.runtime.pool)) {
            Ok(sandbox) => match below_floor(sandbox.posture(), permissions) {
                None => return Ok(Started { sandbox, passed_over: tried }),
                Some(missing) => tried.push(missing),
            },
            Err(error) if error.is_about_this_machine() && wanted.is_none() => {
                tried.push(chain(&error));
                last = Some(error);
            }
            Err(error) => return Err(NotStarted::Failed(error)),
        }
    }
    match (last, tried.as_slice()) {
        (Some(error), [_]) => Err(NotStarted::Failed(error)),
        _ => Err(NotStarted::Refused(floor_refusal(&tried))),
    }
}

/// Starts again what a shortage has kept from starting. A weaker backend is for what a machine cannot do, not for what
/// it could not do just now.
fn start_steadily(start: impl Fn() -> Result<Sandbox, StartError>) -> Result<Sandbox, StartError> {
    let began = Instant::now();
    for pause in PAUSES {
        match start() {
            Err(error) if error.is_transient() && began.elapsed() < PATIENCE => {
                tracing::warn!(why = %chain(&error), "the sandbox is started again");
                std::thread::sleep(pause);
            }
            answer => return answer,
        }
    }
    start()
}

/// A start that did not fail but was answered with a no: what was asked for is never done so, and who asked can change it.
fn refusal_of(error: &StartError) -> Option<Refusal> {
    let (code, rule) = match error {
        StartError::Unsupported { what, .. } => match what {
            Unsupported::FilteredNetwork => (RefusalCode::Network, "network.backend"),
            Unsupported::ClosedRoot => (RefusalCode::Path, "root.closed"),
            Unsupported::SecretFile => (RefusalCode::Secret, "secret.backend"),
            Unsupported::HeldLink => (RefusalCode::Path, "path.held-link"),
            Unsupported::Root => (RefusalCode::Path, "root.backend"),
            Unsupported::WholeMachine => (RefusalCode::Profile, "profile.backend"),
        },
        StartError::Survey(SurveyError::TooLong { .. }) => (RefusalCode::Path, "path.too-long"),
        _ => return None,
    };
    let (rule, message) = (rule.to_owned(), chain(error));
    let hint = error.hint().or_else(|| Some("another backend, or another path".to_owned()));
    Some(Refusal { code, layer: Layer::Floor, rule, message, hint })
}

/// Why a backend that holds nothing inside a root must not be used for these roots: a command could replace what the host runs next
/// on behalf of Ringfence. Where nothing is contained at all, that was asked for.
fn replaceable(own: &[PathBuf], permissions: &Permissions, backend: Backend) -> Option<Refusal> {
    if backend != Backend::Landlock || !matches!(permissions.view, GrantedView::Constructed) {
        return None;
    }
    let writable: Vec<&Path> = permissions
        .roots
        .iter()
        .filter(|root| root.access == Access::Write)
        .map(|root| root.path.as_path())
        .collect();
    let lies_in = |path: &Path| writable.iter().find(|root| path.starts_with(root)).copied();
    let found = own.iter().find_map(|file| {
        let real = std::fs::canonicalize(file).ok();
        let root = lies_in(file).or_else(|| lies_in(real.as_deref()?))?;
        Some((file, root))
    });
    let (file, root) = found?;
    Some(Refusal {
        code: RefusalCode::Workspace,
        layer: Layer::Floor,
        rule: "workspace.own-program".to_owned(),
        message: format!(
            "the host runs or obeys `{}` next on behalf of Ringfence, and backend `{backend}` cannot keep what is in the root `{}` \
             from replacing it",
            Bytes::from(file.as_path()).display(),
            Bytes::from(root).display()
        ),
        hint: Some("install ringfence outside of what agents write, or use backend `native`".to_owned()),
    })
}

/// What of the floor a sandbox misses, in words; `None` when it misses nothing.
fn below_floor(posture: &Posture, permissions: &Permissions) -> Option<String> {
    let missing: Vec<String> = posture
        .below(&permissions.floor)
        .map(|(control, level)| match level {
            Some(Level::Absent { reason, fix }) => format!("{control} is absent: {reason} ({fix})"),
            Some(Level::Partial { missing, .. }) => format!("{control} is partial: {missing}"),
            Some(Level::Enforced { .. } | Level::Declared { .. }) | None => {
                format!("{control} was not reported")
            }
        })
        .collect();
    (!missing.is_empty()).then(|| format!("backend `{}`: {}", posture.backend, missing.join("; ")))
}

fn floor_refusal(tried: &[String]) -> Refusal {
    Refusal {
        code: RefusalCode::Floor,
        layer: Layer::Floor,
        rule: "floor".to_owned(),
        message: format!("no backend meets the floor on this machine: {}", tried.join(" | ")),
        hint: Some("`ringfence doctor` shows each control with its fix".to_owned()),
    }
}

/// What even a command that sees the whole machine must not touch: the record, and what others hold.
fn own_state(state_dir: &Path, config_dir: &Path) -> Vec<PathBuf> {
    let files = [
        "ledger.db",
        "ledger.db-wal",
        "ledger.db-shm",
        "ledger.key",
        "ledger.key.next",
        "ledger.lock",
        "ledger.aside",
        "ledger.aside.new",
        "node",
        "node.key",
        "placeholders",
        "approvals",
        "salt",
        "proposals",
        "identity",
    ];
    // What is not there cannot be covered, and what the command put there would steer the next run.
    for directory in ["placeholders", "approvals", "proposals", "identity"] {
        make_private(&state_dir.join(directory));
    }
    make_private(config_dir);
    let secrets = SecretStore::new(state_dir);
    let own = secrets.places().map(Path::to_owned).into_iter().chain([config_dir.to_owned()]);
    files.iter().map(|name| state_dir.join(name)).chain(own).collect()
}

fn make_private(directory: &Path) {
    // Where it cannot be made now, it cannot be made later either.
    let _made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
}

pub(crate) fn spec(session: &Bound<'_>, permissions: &Permissions, backend: Backend) -> Spec {
    let setup = &session.runtime.setup;
    let mut hidden: Vec<PathBuf> =
        permissions.hidden.iter().map(|path| PathBuf::from(path.as_path())).collect();
    let mut frozen = Vec::new();
    if !hidden.is_empty() {
        hidden.extend(own_state(&setup.state_dir, &setup.config_dir));
        frozen.push(setup.state_dir.clone());
    }
    Spec {
        backend,
        roots: permissions.roots.clone(),
        view: match permissions.view {
            GrantedView::Constructed => View::Constructed,
            GrantedView::WholeMachine => View::WholeMachine { hidden, frozen },
        },
        toolchains: {
            // An image has its own.
            let own = setup.toolchains.iter().filter(|_| backend != Backend::Container);
            let toolchains = own.flat_map(|toolchain| toolchain.roots.clone());
            let kept = session.workspace.tools.iter().filter(|_| backend != Backend::Container);
            toolchains.chain(kept.cloned()).collect()
        },
        shown: session.shown.clone(),
        home: session.workspace.home.clone(),
        net: permissions.net,
        limits: permissions.limits.clone(),
        files: setup.files.clone(),
        secrets: session.secrets.files(),
        registry: setup.state_dir.join("placeholders"),
        sweeper: match (backend, permissions.view) {
            (Backend::Native | Backend::Bubblewrap | Backend::Container, GrantedView::Constructed) => {
                session.runtime.sweeper()
            }
            // No placeholders are made there.
            _ => None,
        },
        container: session.container.as_ref().map(|chosen| chosen.spec.clone()),
    }
}
