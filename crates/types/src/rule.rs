//! Rules: what a refusal, a request for approval and a ledger record name as their reason.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workspace::{Profile, UnknownKeyword, words};

words! {
    /// A built-in rule. `docs/errors.md` and the pages that it names explain each.
    RuleId("rule") {
        ApplyBusy = "apply.busy",
        ApplyClosed = "apply.closed",
        ApplyConflict = "apply.conflict",
        ApplyContents = "apply.contents",
        ApplyWorkspace = "apply.workspace",
        ApprovalActionChanged = "approval.action-changed",
        ApprovalAlreadyDenied = "approval.already-denied",
        ApprovalAlreadyVoted = "approval.already-voted",
        ApprovalAlwaysHere = "approval.always-here",
        ApprovalCircuitBreaker = "approval.circuit-breaker",
        ApprovalDenied = "approval.denied",
        ApprovalExpired = "approval.expired",
        ApprovalFromSession = "approval.from-session",
        ApprovalNoTerminal = "approval.no-terminal",
        ApprovalNotOffered = "approval.not-offered",
        ApprovalOnce = "approval.once",
        ApprovalOrphaned = "approval.orphaned",
        ApprovalRequesterCannotAnswer = "approval.requester-cannot-answer",
        ApprovalRequesterGone = "approval.requester-gone",
        ApprovalSession = "approval.session",
        ApprovalSuperseded = "approval.superseded",
        ApprovalTooManyPending = "approval.too-many-pending",
        ApprovalUnreachable = "approval.unreachable",
        BackendExternal = "backend.external",
        BackendNone = "backend.none",
        CallEmpty = "call.empty",
        CallerSetUserId = "caller.set-user-id",
        CeilingBackend = "ceiling.backend",
        CeilingForm = "ceiling.form",
        CeilingHosts = "ceiling.hosts",
        CeilingLimits = "ceiling.limits",
        CeilingNet = "ceiling.net",
        CeilingRoots = "ceiling.roots",
        CeilingSandboxes = "ceiling.sandboxes",
        CommandsAllow = "commands.allow",
        CommandsAsk = "commands.ask",
        CommandsDeny = "commands.deny",
        DiffDoesNotApply = "diff.does-not-apply",
        DiffMalformed = "diff.malformed",
        EnvHarmless = "env.harmless",
        EnvName = "env.name",
        EnvReserved = "env.reserved",
        EnvSteering = "env.steering",
        EnvUnlisted = "env.unlisted",
        EnvValue = "env.value",
        ExecArgv = "exec.argv",
        ExecCwd = "exec.cwd",
        FlagsAllowDenylistedCommands = "flags.allow-denylisted-commands",
        FlagsAllowSensitiveRoots = "flags.allow-sensitive-roots",
        Floor = "floor",
        FlowOwn = "flow.own",
        FlowUnjudged = "flow.unjudged",
        FlowUnmade = "flow.unmade",
        GitCleanForce = "git.clean-force",
        GitConfig = "git.config",
        GitContent = "git.content",
        GitPushForce = "git.push-force",
        GitResetHard = "git.reset-hard",
        GitSurroundings = "git.surroundings",
        GrantAmbiguous = "grant.ambiguous",
        GrantExhausted = "grant.exhausted",
        GuardedBuiltin = "guarded.builtin",
        GuardedCd = "guarded.cd",
        GuardedDynamic = "guarded.dynamic",
        GuardedInterpreter = "guarded.interpreter",
        GuardedPythonList = "guarded.python-list",
        GuardedRedirection = "guarded.redirection",
        GuardedShellBody = "guarded.shell-body",
        GuardedShellFile = "guarded.shell-file",
        GuardedStartFile = "guarded.start-file",
        GuardedTest = "guarded.test",
        GuardedTooMuch = "guarded.too-much",
        GuardedUnlisted = "guarded.unlisted",
        GuardedUnreadableText = "guarded.unreadable-text",
        GuardedUntrustedProgram = "guarded.untrusted-program",
        GuardedWildcard = "guarded.wildcard",
        GuardedWrapper = "guarded.wrapper",
        HeldClosedDirectory = "held.closed-directory",
        HeldGitAttributes = "held.git-attributes",
        HeldGitConfig = "held.git-config",
        HeldGitHook = "held.git-hook",
        HeldGitPath = "held.git-path",
        HeldGitPointer = "held.git-pointer",
        HeldGitRebase = "held.git-rebase",
        HeldGitRemote = "held.git-remote",
        HeldLink = "held.link",
        HeldUnfinished = "held.unfinished",
        HeldVersionControl = "held.version-control",
        HookCannotRewrite = "hook.cannot-rewrite",
        HookDisabled = "hook.disabled",
        HookUnrecorded = "hook.unrecorded",
        HookMalformed = "hook.malformed",
        HookSearch = "hook.search",
        HostMalformed = "host.malformed",
        HostMetadata = "host.metadata",
        HostMethod = "host.method",
        HostNotLeft = "host.not-left",
        HostPath = "host.path",
        HostPort = "host.port",
        HostScheme = "host.scheme",
        HostSecret = "host.secret",
        HostSpecial = "host.special",
        HostUnlisted = "host.unlisted",
        HttpFraming = "http.framing",
        HttpOrigin = "http.origin",
        IdentityAttenuated = "identity.attenuated",
        IdentityBudget = "identity.budget",
        IdentityCsrf = "identity.csrf",
        IdentityExpired = "identity.expired",
        IdentityKind = "identity.kind",
        IdentityLifetime = "identity.lifetime",
        IdentityNoToken = "identity.no-token",
        IdentityNotOwner = "identity.not-owner",
        IdentityPairing = "identity.pairing",
        IdentityProof = "identity.proof",
        IdentityRevoked = "identity.revoked",
        IdentityScope = "identity.scope",
        IdentityThrottled = "identity.throttled",
        IdentityUnknown = "identity.unknown",
        IdentityWiderThanParent = "identity.wider-than-parent",
        IdentityWorkspace = "identity.workspace",
        ImageBackend = "image.backend",
        ImageList = "image.list",
        ImageSignature = "image.signature",
        ImageUnlisted = "image.unlisted",
        ImageUnnamed = "image.unnamed",
        LandingConflict = "landing.conflict",
        LandingHidden = "landing.hidden",
        LandingNothing = "landing.nothing",
        LandingProtected = "landing.protected",
        LandingTooMany = "landing.too-many",
        LandingWorkspace = "landing.workspace",
        LayerUnsupported = "layer.unsupported",
        LeaksArguments = "leaks.arguments",
        LeaksFiles = "leaks.files",
        LeaksMarks = "leaks.marks",
        LeaksOutput = "leaks.output",
        LeaksTerminate = "leaks.terminate",
        LedgerRecovery = "ledger.recovery",
        LedgerWrittenBeforeDone = "ledger.written-before-done",
        LimitsDeciding = "limits.deciding",
        LimitsDisk = "limits.disk",
        LimitsFlowBytes = "limits.flow-bytes",
        LimitsFlows = "limits.flows",
        LimitsFlowsPerSecond = "limits.flows-per-second",
        LimitsRequests = "limits.requests",
        LimitsSessionBytes = "limits.session-bytes",
        LimitsSignedBytes = "limits.signed-bytes",
        LoopRepeated = "loop.repeated",
        MethodOperatorsOnly = "method.operators-only",
        MethodOwnSessionOnly = "method.own-session-only",
        NetCeiling = "net.ceiling",
        NetFull = "net.full",
        NetNone = "net.none",
        NetworkAddresses = "network.addresses",
        NetworkBackend = "network.backend",
        NetworkDecision = "network.decision",
        NetworkGate = "network.gate",
        NetworkInspect = "network.inspect",
        NetworkMalformed = "network.malformed",
        NetworkNames = "network.names",
        NetworkNamesAgree = "network.names-agree",
        NetworkRequest = "network.request",
        NetworkScan = "network.scan",
        NetworkSecrets = "network.secrets",
        NetworkSigning = "network.signing",
        NetworkSteering = "network.steering",
        NetworkUpgrade = "network.upgrade",
        OfflineGit = "offline.git",
        OfflineNetworkTool = "offline.network-tool",
        OfflineUrl = "offline.url",
        PatchEmpty = "patch.empty",
        PatchPathConflict = "patch.path-conflict",
        PatchSize = "patch.size",
        PathAccess = "path.access",
        PathAgentInstructions = "path.agent-instructions",
        PathBoundary = "path.boundary",
        PathBuildScript = "path.build-script",
        PathCertificate = "path.certificate",
        PathCi = "path.ci",
        PathDanglingLink = "path.dangling-link",
        PathDevice = "path.device",
        PathEditorConfig = "path.editor-config",
        PathEnvironment = "path.environment",
        PathExists = "path.exists",
        PathForm = "path.form",
        PathGitConfig = "path.git-config",
        PathGitDir = "path.git-dir",
        PathGitHooks = "path.git-hooks",
        PathHardLinked = "path.hard-linked",
        PathHeldLink = "path.held-link",
        PathHidden = "path.hidden",
        PathHome = "path.home",
        PathIdentity = "path.identity",
        PathKeyMaterial = "path.key-material",
        PathLink = "path.link",
        PathLinkTarget = "path.link-target",
        PathLogins = "path.logins",
        PathMalformed = "path.malformed",
        PathNamedSecret = "path.named-secret",
        PathNotDirectory = "path.not-directory",
        PathNotLeft = "path.not-left",
        PathNotRegular = "path.not-regular",
        PathOpen = "path.open",
        PathOutside = "path.outside",
        PathPattern = "path.pattern",
        PathPrivateTmp = "path.private-tmp",
        PathProtected = "path.protected",
        PathReadOnly = "path.read-only",
        PathRule = "path.rule",
        PathServiceCredentials = "path.service-credentials",
        PathState = "path.state",
        PathSurvey = "path.survey",
        PathTooLarge = "path.too-large",
        PathTooLong = "path.too-long",
        PathTooMany = "path.too-many",
        PathUnknownDirectory = "path.unknown-directory",
        PathVersionControl = "path.version-control",
        PolicyCeiling = "policy.ceiling",
        PolicyUnreadable = "policy.unreadable",
        ProfileAirGapped = "profile.air-gapped",
        ProfileBackend = "profile.backend",
        ProfileDanger = "profile.danger",
        ProfileFloor = "profile.floor",
        ProfileGuarded = "profile.guarded",
        ProfileNet = "profile.net",
        ProfileReview = "profile.review",
        ProfileStrict = "profile.strict",
        ProfileWorkspace = "profile.workspace",
        RequestError = "request.error",
        RootBackend = "root.backend",
        RootClosed = "root.closed",
        RootHome = "root.home",
        RootMissing = "root.missing",
        RootOwnState = "root.own-state",
        RootRootDir = "root.root-dir",
        RootSensitive = "root.sensitive",
        RootsAbsolute = "roots.absolute",
        RootsEmpty = "roots.empty",
        SecretBackend = "secret.backend",
        SecretHome = "secret.home",
        SecretLate = "secret.late",
        SecretNowhere = "secret.nowhere",
        SecretPlaceholder = "secret.placeholder",
        SecretProvider = "secret.provider",
        SecretProxyOnly = "secret.proxy-only",
        SecretScope = "secret.scope",
        SecretShort = "secret.short",
        SecretSigning = "secret.signing",
        SecretTooMany = "secret.too-many",
        SecretUnknown = "secret.unknown",
        SecretVariable = "secret.variable",
        SecretsInPath = "secrets.in-path",
        SecretsIntroduced = "secrets.introduced",
        SensitiveRoots = "sensitive-roots",
        SessionSocketNotOverTcp = "session-socket.not-over-tcp",
        SessionSocketWrongToken = "session-socket.wrong-token",
        SessionCeiling = "session.ceiling",
        SessionEnded = "session.ended",
        SessionSecret = "session.secret",
        ToolNotAllowed = "tool.not-allowed",
        ToolsForeign = "tools.foreign",
        ToolsNotChosen = "tools.not-chosen",
        ToolsUnknown = "tools.unknown",
        WebCredentials = "web.credentials",
        WebHost = "web.host",
        WebOrigin = "web.origin",
        WebTokenInUrl = "web.token-in-url",
        WorkspaceAbsolute = "workspace.absolute",
        WorkspaceHome = "workspace.home",
        WorkspaceKind = "workspace.kind",
        WorkspaceMissing = "workspace.missing",
        WorkspaceOwnProgram = "workspace.own-program",
        WorkspaceOwnState = "workspace.own-state",
        WorkspaceOwner = "workspace.owner",
        WorkspaceRootDir = "workspace.root-dir",
        WorkspaceSecret = "workspace.secret",
        WorkspaceSensitiveRoot = "workspace.sensitive-root",
        WorkspaceSystemDir = "workspace.system-dir",
        WorkspaceUnreadable = "workspace.unreadable",
    }
}

impl RuleId {
    /// The rule of a profile as a whole.
    pub fn of_profile(profile: Profile) -> Self {
        match profile {
            Profile::Review => Self::ProfileReview,
            Profile::Guarded => Self::ProfileGuarded,
            Profile::Workspace => Self::ProfileWorkspace,
            Profile::Strict => Self::ProfileStrict,
            Profile::AirGapped => Self::ProfileAirGapped,
            Profile::Danger => Self::ProfileDanger,
        }
    }
}

words! {
    /// Rules that have one member per program, variable, host or tool. A table or a policy file has the members.
    RuleFamily("rule family") {
        /// A command that the built-in deny list names.
        DenyList = "deny-list",
        /// A variable that steers a program, or a pattern of an `[[env]]` rule.
        Env = "env",
        /// A listed command.
        Guarded = "guarded",
        /// The host of a `[[host]]` rule.
        Hosts = "hosts",
        /// A command line program with a manifest.
        Manifest = "manifest",
        /// An option that makes a program run or write something else.
        Option = "option",
        /// A program of which a policy file lists the subcommands.
        Restriction = "restriction",
        /// The pattern of a `[[tool]]` rule.
        Tools = "tools",
        /// A program that runs another one in a different way.
        Wrapper = "wrapper",
    }
}

impl RuleFamily {
    pub fn member(self, name: impl fmt::Display) -> RuleName {
        RuleName(Cow::Owned(format!("{}.{name}", self.word())))
    }

    pub fn contains(self, rule: &RuleName) -> bool {
        rule.strip_prefix(self.word()).is_some_and(|rest| rest.starts_with('.'))
    }
}

/// The rule that decided, as a person looks it up: `path.boundary`, `guarded.git-status`,
/// `path.rule (/etc/ringfence/config.toml:3:1)`.
///
/// Code makes it from a [`RuleId`], a [`RuleFamily`] or a rule of the scanner alone. Text that is read may name a rule of another version, so that
/// its records stay readable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleName(Cow<'static, str>);

impl RuleName {
    /// The rule with the place where it is written.
    #[must_use]
    pub fn at(&self, origin: impl fmt::Display) -> Self {
        Self(Cow::Owned(format!("{self} ({origin})")))
    }

    /// The rule of the scanner that found a secret: `github-token`, `secret/NAME`.
    pub fn of_scanner(rule: &str) -> Self {
        Self(Cow::Owned(rule.to_owned()))
    }

    /// A rule that decided because of another one.
    pub fn because_of(rule: RuleId, cause: &Self) -> Self {
        Self(Cow::Owned(format!("{rule}: {cause}")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `None`: a member of a family, or a rule of another version.
    pub fn id(&self) -> Option<RuleId> {
        let end = self.0.find([':', ' ']).unwrap_or(self.0.len());
        self.0.get(..end)?.parse().ok()
    }
}

impl From<RuleId> for RuleName {
    fn from(id: RuleId) -> Self {
        Self(Cow::Borrowed(id.word()))
    }
}

impl From<RuleName> for String {
    fn from(rule: RuleName) -> Self {
        rule.0.into_owned()
    }
}

impl Deref for RuleName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<RuleId> for RuleName {
    fn eq(&self, id: &RuleId) -> bool {
        self.0 == id.word()
    }
}

impl PartialEq<str> for RuleName {
    fn eq(&self, text: &str) -> bool {
        self.0 == text
    }
}

impl PartialEq<&str> for RuleName {
    fn eq(&self, text: &&str) -> bool {
        self.0 == *text
    }
}

#[cfg(test)]
mod tests;
