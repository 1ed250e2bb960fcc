//! Starts the sandbox of a session or of one call: which backend, on what floor, from what specification.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_authz::{CallPermissions, FilesystemView as GrantedView};
use ringfence_egress::SessionCa;
use ringfence_sandbox::survey::SurveyError;
use ringfence_sandbox::{
    HostView, ProxySockets, Sandbox, SandboxSpec, SandboxStartError, UnsupportedFeature,
};
use ringfence_types::{
    Access, Backend, ByteString, ControlLevel, NetMode, PolicyLayer, Posture, Refusal, RefusalCode, RuleId,
};

use super::ExecEffect;
use crate::effect::held_changes;
use crate::pipeline::{Admitted, Settled, chain, closed};
use crate::proxy::{SessionProxy, SessionProxyError, bundle};
use crate::sandbox_rules::{HostFiles, SandboxRules};
use crate::secrets::SecretStore;
use crate::session::{AgentSession, SessionFence, SessionShared};

/// Why a session has no sandbox for a command.
pub(super) enum NotStarted {
    Refused(Refusal),
    Failed(SandboxStartError),
    Network(SessionProxyError),
}

impl NotStarted {
    /// Ends the call that was admitted.
    pub(super) fn settle(self, admitted: Admitted<ExecEffect>, session: &mut AgentSession<'_>) -> Settled {
        let settling = admitted.settling();
        match self {
            Self::Network(error) => {
                let hint = "use `--net none`, or look for what is missing in `ringfence doctor`";
                settling.failed(session, chain(&error), Some(hint.to_owned()))
            }
            Self::Refused(refusal) => settling.refused(session, refusal),
            Self::Failed(error) => match refusal_of(&error) {
                Some(refusal) => settling.refused(session, refusal),
                None => {
                    let hint = error.hint();
                    settling.failed(session, chain(&error), hint)
                }
            },
        }
    }
}

/// The sandbox of a session, leased to one call. The idle timeout does not stop it during the lease.
#[derive(Debug)]
pub(super) struct LeasedSandbox {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) filtered: bool,
}

/// The sandbox of the session, started if needed. Of two concurrent first calls, one waits for the other.
pub(super) fn lease_sandbox(
    session: &mut AgentSession<'_>,
    permissions: &CallPermissions,
) -> Result<LeasedSandbox, NotStarted> {
    // The next due time is irrelevant, because a command runs now.
    let _due = session.rest();
    if session.own.is_some() {
        return lease_own_sandbox(session, permissions);
    }
    let mut fence = session.common.fence();
    if session.common.memory().is_closed() {
        return Err(NotStarted::Refused(closed()));
    }
    if let Some(sandbox) = &fence.sandbox {
        return Ok(LeasedSandbox { sandbox: Arc::clone(sandbox), filtered: fence.network.is_some() });
    }
    let started = start(session, permissions)?;
    let leased = started.lease();
    *fence = started.into_fence();
    drop(fence);
    session.container_started();
    Ok(leased)
}

/// The sandbox of a call whose ceiling is below that of its session.
fn lease_own_sandbox(
    session: &mut AgentSession<'_>,
    permissions: &CallPermissions,
) -> Result<LeasedSandbox, NotStarted> {
    let started = start(session, permissions)?;
    let leased = started.lease();
    session.put_up_own(started.into_fence()).map_err(NotStarted::Refused)?;
    // Checked after registration, so that a session that ends from now on also ends the sandbox.
    if session.common.memory().is_closed() {
        return Err(NotStarted::Refused(closed()));
    }
    Ok(leased)
}

/// Strongest first. Policy chooses `container` and a flag chooses `none`; neither is a fallback.
const LADDER: [Backend; 3] = [Backend::Native, Backend::Bubblewrap, Backend::Landlock];

/// Pauses before each retry of a start that failed for lack of resources.
static PAUSES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// After this total time a start is not retried.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sandbox with its proxy, and the stronger backends that failed, each with the reason.
struct FenceStart {
    network: Option<SessionProxy>,
    sandbox: Arc<Sandbox>,
    skipped_backends: Vec<String>,
}

impl FenceStart {
    /// Opens the proxy of a sandbox whose network is filtered, and from now on records what the sandbox holds.
    fn new(
        session: &AgentSession<'_>,
        mut sandbox: Sandbox,
        ca: Option<Arc<SessionCa>>,
        skipped_backends: Vec<String>,
    ) -> Result<Self, NotStarted> {
        let network = ca.map(|ca| open_proxy(session, &mut sandbox, ca)).transpose();
        let network = network.map_err(NotStarted::Network)?;
        held_changes::record(session, &sandbox);
        session.common.tell(sandbox.notes().iter().cloned());
        Ok(Self { network, sandbox: Arc::new(sandbox), skipped_backends })
    }

    fn lease(&self) -> LeasedSandbox {
        LeasedSandbox { sandbox: Arc::clone(&self.sandbox), filtered: self.network.is_some() }
    }

    fn into_fence(self) -> SessionFence {
        let Self { network, sandbox, skipped_backends } = self;
        SessionFence { network, sandbox: Some(sandbox), skipped_backends, told: false }
    }
}

/// Before any command runs, so that the first connection finds a listening proxy.
fn open_proxy(
    session: &AgentSession<'_>,
    sandbox: &mut Sandbox,
    ca: Arc<SessionCa>,
) -> Result<SessionProxy, SessionProxyError> {
    let doors = sandbox.take_doors().ok_or(SessionProxyError::NoDoors)?;
    let ProxySockets { proxy, transparent, dns, dns_stream } = doors;
    let doors = ringfence_egress::ProxyListeners { proxy, transparent, dns, dns_stream };
    SessionProxy::open(session, doors, sandbox.hold().clone(), ca)
}

/// Starts the strongest backend that meets the floor of the call.
fn start(session: &AgentSession<'_>, permissions: &CallPermissions) -> Result<FenceStart, NotStarted> {
    let ca = (permissions.net == NetMode::Filtered).then(SessionCa::new).transpose();
    let ca = ca.map_err(|error| NotStarted::Network(error.into()))?.map(Arc::new);
    let wanted = session.policy.backend;
    let candidates = wanted.as_ref().map_or(&LADDER[..], std::slice::from_ref);
    let mut tried: Vec<String> = Vec::new();
    let mut last = None;
    let rules = SandboxRules::new(&session.policy.rules.paths)
        .worked_in(&session.worked_in)
        .host(HostFiles::of(&session.runtime.setup));
    for backend in candidates {
        if let Some(refusal) = replaceable(&session.runtime.setup.own, permissions, *backend) {
            if wanted.is_some() {
                return Err(NotStarted::Refused(refusal));
            }
            tried.push(refusal.message);
            continue;
        }
        let mut spec = spec(session, permissions, *backend);
        spec.layer = session.layer_source();
        spec.files.extend(ca.as_deref().map(bundle));
        let mut retries = StartRetries::new();
        let started = loop {
            match Sandbox::start_from(&spec, &rules, Some(&session.runtime.pool)) {
                Err(error) if retries.wait_after(&error) => {}
                started => break started,
            }
        };
        match started {
            Ok(sandbox) => match below_floor(sandbox.posture(), permissions) {
                None => return FenceStart::new(session, sandbox, ca, tried),
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

/// The retries of a start after a resource shortage. Only a missing feature, never a passing shortage, leads to
/// a weaker backend.
struct StartRetries {
    began: Instant,
    pauses: std::slice::Iter<'static, Duration>,
}

impl StartRetries {
    fn new() -> Self {
        Self { began: Instant::now(), pauses: PAUSES.iter() }
    }

    /// Waits before the next try. Returns whether there is one: the error may pass, and a try is left.
    fn wait_after(&mut self, error: &SandboxStartError) -> bool {
        if !error.is_transient() || self.began.elapsed() >= PATIENCE {
            return false;
        }
        let Some(pause) = self.pauses.next() else { return false };
        tracing::warn!(error = %chain(error), "restarting the sandbox");
        std::thread::sleep(*pause);
        true
    }
}

/// The refusal for a start that can never succeed as requested; the requester can change the request.
fn refusal_of(error: &SandboxStartError) -> Option<Refusal> {
    let (code, rule) = match error {
        SandboxStartError::Unsupported { what, .. } => match what {
            UnsupportedFeature::FilteredNetwork => (RefusalCode::Network, RuleId::NetworkBackend),
            UnsupportedFeature::ClosedRoot => (RefusalCode::Path, RuleId::RootClosed),
            UnsupportedFeature::SecretFile => (RefusalCode::Secret, RuleId::SecretBackend),
            UnsupportedFeature::HeldLink => (RefusalCode::Path, RuleId::PathHeldLink),
            UnsupportedFeature::Root => (RefusalCode::Path, RuleId::RootBackend),
            UnsupportedFeature::WholeMachine => (RefusalCode::Profile, RuleId::ProfileBackend),
            UnsupportedFeature::Layer => (RefusalCode::Path, RuleId::LayerUnsupported),
        },
        SandboxStartError::Survey(SurveyError::TooLong { .. }) => (RefusalCode::Path, RuleId::PathTooLong),
        _ => return None,
    };
    let (rule, message) = (rule.into(), chain(error));
    let hint = error.hint().or_else(|| Some("another backend, or another path".to_owned()));
    Some(Refusal { code, layer: PolicyLayer::Floor, rule, message, hint })
}

/// Refuses the Landlock backend if a root contains programs that the host runs for Ringfence: it protects
/// nothing inside a root, so a command could replace them. With `none` the user chose to have no containment.
fn replaceable(own: &[PathBuf], permissions: &CallPermissions, backend: Backend) -> Option<Refusal> {
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
        layer: PolicyLayer::Floor,
        rule: RuleId::WorkspaceOwnProgram.into(),
        message: format!(
            "the host runs or obeys `{}` next on behalf of Ringfence, and backend `{backend}` cannot keep what is in the root `{}` \
             from replacing it",
            ByteString::from(file.as_path()).display(),
            ByteString::from(root).display()
        ),
        hint: Some("install ringfence outside of what agents write, or use backend `native`".to_owned()),
    })
}

/// The controls of the floor that a sandbox lacks, as text; `None` if it lacks none.
fn below_floor(posture: &Posture, permissions: &CallPermissions) -> Option<String> {
    let missing: Vec<String> = posture
        .below(&permissions.floor)
        .map(|(control, level)| match level {
            Some(ControlLevel::Absent { reason, fix }) => format!("{control} is absent: {reason} ({fix})"),
            Some(ControlLevel::Partial { missing, .. }) => format!("{control} is partial: {missing}"),
            Some(ControlLevel::Enforced { .. } | ControlLevel::Declared { .. }) | None => {
                format!("{control} was not reported")
            }
        })
        .collect();
    (!missing.is_empty()).then(|| format!("backend `{}`: {}", posture.backend, missing.join("; ")))
}

fn floor_refusal(tried: &[String]) -> Refusal {
    Refusal {
        code: RefusalCode::Floor,
        layer: PolicyLayer::Floor,
        rule: RuleId::Floor.into(),
        message: format!("no backend meets the floor on this machine: {}", tried.join(" | ")),
        hint: Some("`ringfence doctor` shows each control with its fix".to_owned()),
    }
}

/// State files that even a command with a view of the whole machine must not touch: the ledger and the
/// private stores.
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
        "node.key.next",
        "node.lock",
        "node.chain",
        "placeholders",
        "approvals",
        "salt",
        "proposals",
        "layers",
        "identity",
    ];
    // A missing directory cannot be covered, and one that the command creates would influence the next run.
    for directory in ["placeholders", "approvals", "proposals", "layers", "identity"] {
        make_private(&state_dir.join(directory));
    }
    make_private(config_dir);
    let secrets = SecretStore::new(state_dir);
    let own = secrets.places().map(Path::to_owned).into_iter().chain([config_dir.to_owned()]);
    files.iter().map(|name| state_dir.join(name)).chain(own).collect()
}

fn make_private(directory: &Path) {
    // If this fails, the command cannot create it either.
    let _made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
}

pub(crate) fn spec(
    session: &SessionShared<'_>,
    permissions: &CallPermissions,
    backend: Backend,
) -> SandboxSpec {
    let setup = &session.runtime.setup;
    let mut hidden: Vec<PathBuf> =
        permissions.hidden.iter().map(|path| PathBuf::from(path.as_path())).collect();
    let mut frozen = Vec::new();
    if !hidden.is_empty() {
        hidden.extend(own_state(&setup.state_dir, &setup.config_dir));
        frozen.push(setup.state_dir.clone());
    }
    SandboxSpec {
        backend,
        roots: permissions.roots.clone(),
        view: match permissions.view {
            GrantedView::Constructed => HostView::Constructed,
            GrantedView::WholeMachine => HostView::WholeMachine { hidden, frozen },
        },
        toolchains: {
            // An image has its own toolchains.
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
            // This backend makes no placeholders.
            _ => None,
        },
        container: session.container.as_ref().map(|chosen| chosen.spec.clone()),
        layer: None,
    }
}
