//! `ringfence doctor`: tests what this machine enforces; `--attack` runs the escape battery.

mod product_fence;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_battery::{AttemptResult, AttemptVerdict, BatteryReport, BatterySetup, attempts, run_battery};
use ringfence_container::{ContainerEngine, EngineKind, EnginePrivilege};
use ringfence_runtime::Runtime;
use ringfence_runtime::doctor::{self, BackendReport, DoctorReport, TRIED};
use ringfence_runtime::images::{ImageList, ImageListError};
use ringfence_types::{Backend, ByteString, ControlLevel};
use serde::Serialize;

use self::product_fence::{ProductFence, battery_event};
use crate::args::DoctorArgs;
use crate::commands::run::{self, print_json};
use crate::engine;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{aside, note, say};
use crate::own;
use crate::status::{self, AgentStatus};

/// The battery found an escape, or the floor is not met.
const NOT_WHOLE: u8 = 1;

pub(crate) fn run(doctor: &DoctorArgs) -> ExitCode {
    let environment = Environment::read();
    let runtime = match run::runtime(&environment, ApproverPresence::Unattended) {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    // Short names: Unix socket paths of the battery hold 108 bytes.
    let base = match tempfile::Builder::new().prefix("rf").tempdir_in("/tmp") {
        Ok(base) => base,
        Err(error) => return error::failed_text(&format!("cannot make a scratch directory: {error}"), None),
    };
    if doctor.attack {
        attack(doctor, &environment, &runtime, base.path())
    } else {
        examine(doctor, &environment, &runtime, base.path())
    }
}

#[derive(Serialize)]
struct BackendReportJson<'a> {
    schema: u32,
    #[serde(flatten)]
    examination: &'a DoctorReport,
    agents: &'a [AgentStatus],
    engines: &'a [EngineJson],
}

/// A socket at one of the usual places, or the named one.
#[derive(Serialize)]
struct EngineJson {
    socket: ByteString,
    kind: Option<EngineKind>,
    version: Option<String>,
    privilege: Option<EnginePrivilege>,
    /// Why it cannot be used.
    failure: Option<String>,
}

fn engines(doctor: &DoctorArgs, environment: &Environment) -> Vec<EngineJson> {
    let named = doctor.container.engine.engine.is_some();
    let sockets = if named {
        vec![engine::socket(&doctor.container.engine, environment)]
    } else {
        engine::places(environment).into_iter().filter(|place| place.exists()).collect()
    };
    sockets.iter().map(|socket| found(socket)).collect()
}

fn found(socket: &Path) -> EngineJson {
    let shown = ByteString::from(socket);
    match ContainerEngine::connect(socket) {
        Ok(engine) => EngineJson {
            socket: shown,
            kind: Some(engine.kind),
            version: Some(engine.version.clone()),
            privilege: Some(engine.privilege),
            failure: None,
        },
        Err(error) => EngineJson {
            socket: shown,
            kind: None,
            version: None,
            privilege: None,
            failure: Some(error::chain(&error)),
        },
    }
}

fn print_engines(engines: &[EngineJson]) {
    say!("\nengines for `container`");
    for engine in engines {
        let socket = engine.socket.display();
        match (&engine.kind, &engine.version, &engine.privilege, &engine.failure) {
            (Some(kind), Some(version), Some(privilege), _) => {
                say!("  {kind} {}, {privilege}, at {socket}", shown(version))
            }
            (_, _, _, failure) => say!("  {socket}: {}", shown(failure.as_deref().unwrap_or("unknown"))),
        }
    }
    if engines.is_empty() {
        say!(
            "  none; `podman system service` gives one, `ringfence doctor --backend container --image NAME` tries it"
        );
    }
}

fn examine(doctor: &DoctorArgs, environment: &Environment, runtime: &Runtime, base: &Path) -> ExitCode {
    let image = engine::in_image(&doctor.container, environment);
    let with_image = image.is_some().then_some(Backend::Container);
    let all = || TRIED.into_iter().chain(with_image).collect();
    let wanted: Vec<Backend> = doctor.backend.map_or_else(all, |backend| vec![backend]);
    let engines = engines(doctor, environment);
    let examination = match doctor::examine(runtime, base, &wanted, image.as_ref()) {
        Ok(examination) => examination,
        Err(error) => return error::failed(&error, None),
    };
    let agents = status::probed(environment, base);
    if doctor.json {
        print_json(&BackendReportJson {
            schema: 1,
            examination: &examination,
            agents: &agents,
            engines: &engines,
        });
    } else {
        print_examination(&examination, &engines);
        say!("\nagents");
        status::lines(&agents).iter().for_each(|line| say!("  {line}"));
        own::tell_where_it_lies();
    }
    if examination.chosen.is_some() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WHOLE) }
}

fn print_examination(examination: &DoctorReport, engines: &[EngineJson]) {
    let landlock = examination.landlock_abi.map_or_else(|| "none".to_owned(), |abi| format!("ABI {abi}"));
    let who = if examination.uid == 0 { "root".to_owned() } else { format!("uid {}", examination.uid) };
    say!("Linux {}, Landlock {landlock}, as {who}", examination.kernel);
    if examination.swept > 0 {
        say!("removed {} placeholders that killed sessions left behind", examination.swept);
    }
    for backend in &examination.backends {
        print_backend(backend);
    }
    print_engines(engines);
    match examination.chosen {
        Some(backend) => say!("\n`ringfence run` uses `{backend}` here: it meets the default floor."),
        None => {
            say!("\nNo backend meets the default floor, so `ringfence run` refuses. See the fixes above.")
        }
    }
}

fn print_backend(examined: &BackendReport) {
    say!("\n{}", examined.backend);
    let Some(posture) = &examined.posture else {
        say!("  not available: {}", shown(examined.failure.as_deref().unwrap_or("unknown")));
        if let Some(hint) = &examined.hint {
            say!("  fix: {hint}");
        }
        return;
    };
    for (control, level) in &posture.controls {
        print_level(control.word(), level);
    }
    if let Some(level) = &examined.filtered {
        print_level("filtered", level);
    }
}

fn print_level(what: &str, level: &ControlLevel) {
    let (detail, fix) = match level {
        ControlLevel::Enforced { by } | ControlLevel::Declared { by } => (by.clone(), None),
        ControlLevel::Partial { by, missing, .. } => (format!("{by}; not: {missing}"), None),
        ControlLevel::Absent { reason, fix } => (reason.clone(), Some(fix).filter(|fix| !fix.is_empty())),
    };
    say!("  {what:<9} {:<9} {detail}", level.word());
    if let Some(fix) = fix {
        say!("            fix: {fix}");
    }
}

fn shown(text: &str) -> String {
    ByteString::from(text).display()
}

fn attack(doctor: &DoctorArgs, environment: &Environment, runtime: &Runtime, base: &Path) -> ExitCode {
    let backend = doctor.backend.unwrap_or(Backend::Native);
    let state_dir = base.join("state");
    let image = engine::in_image(&doctor.container, environment);
    let product = ProductFence { state_dir, backend, image, home: environment.home.clone() };
    if let Err(code) = list_image(&product, runtime) {
        return code;
    }
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(error) => return error::failed_text(&format!("cannot find this program: {error}"), None),
    };
    let setup = BatterySetup {
        exe,
        base: base.to_owned(),
        home: environment.home.clone(),
        state: host::state_dir(environment).ok(),
        workers: 2,
        only: doctor.only.clone(),
    };
    let mut progress = BatteryProgress::new(doctor);
    let report = match run_battery(&product, &setup, &mut |result| progress.show(result)) {
        Ok(report) => report,
        Err(error) => return error::failed(&error, None),
    };
    progress.clear();
    if let Err(error) = runtime.ledger().append(&battery_event(&report, backend)) {
        return error::failed(&error, error.hint());
    }
    show(doctor, &report, backend);
    if report.is_held() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WHOLE) }
}

/// Adds the named image to the battery's own configuration.
fn list_image(product: &ProductFence, runtime: &Runtime) -> Result<(), ExitCode> {
    let failed = |error: ImageListError| error::failed(&error, error.hint().as_deref());
    let Some(image) = &product.image else { return Ok(()) };
    let images = ImageList::load(&runtime.setup().config_dir).map_err(failed)?;
    let listed =
        images.find(&image.name).ok_or_else(|| failed(ImageListError::Unknown(image.name.clone())))?;
    let change = ImageList::add(&product.config_dir(), listed.clone()).map_err(failed)?;
    change.make().map_err(|error| error::failed(&error, None))
}

/// One line that is overwritten, on a terminal only; failed attempts stay visible.
struct BatteryProgress {
    live: bool,
    quiet: bool,
    done: usize,
    total: usize,
}

impl BatteryProgress {
    fn new(doctor: &DoctorArgs) -> Self {
        let total = attempts().filter(|a| doctor.only.as_deref().is_none_or(|p| a.id.starts_with(p))).count();
        Self { live: std::io::stderr().is_terminal() && !doctor.json, quiet: doctor.json, done: 0, total }
    }

    fn show(&mut self, result: &AttemptResult) {
        self.done += 1;
        if !self.quiet
            && !matches!(result.verdict, AttemptVerdict::Held | AttemptVerdict::NotApplicable { .. })
        {
            self.clear();
            note!("{}", line(result));
        }
        if self.live {
            aside(format_args!("\r\x1b[K{}/{} {}", self.done, self.total, result.id));
        }
    }

    fn clear(&self) {
        if self.live {
            aside(format_args!("\r\x1b[K"));
        }
    }
}

const UNTRIED: &str = "could not be tried";

fn line(result: &AttemptResult) -> String {
    let (word, detail) = match &result.verdict {
        AttemptVerdict::Held => ("held", String::new()),
        AttemptVerdict::Escaped { what } => ("ESCAPED", what.join(", ")),
        AttemptVerdict::ControlFailed { why } => (UNTRIED, format!("not even without the fence: {why}")),
        AttemptVerdict::NotApplicable { why } => ("not applicable", why.clone()),
        AttemptVerdict::NotRun { why } => (UNTRIED, why.clone()),
    };
    format!("{:<32} {word:<14} {}  {}", result.id, result.title, shown(&detail)).trim_end().to_owned()
}

#[derive(Serialize)]
struct BatteryReportJson<'a> {
    schema: u32,
    backend: Backend,
    whole: bool,
    #[serde(flatten)]
    report: &'a BatteryReport,
}

fn show(doctor: &DoctorArgs, report: &BatteryReport, backend: Backend) {
    if doctor.json {
        return print_json(&BatteryReportJson { schema: 1, backend, whole: report.is_perfect(), report });
    }
    for result in &report.results {
        say!("{}", line(result));
    }
    let untried = report.untried();
    let skipped = report.results.len() - report.total_applicable - untried;
    say!("");
    say!(
        "{} of {} attempts held in backend `{backend}`, in {:.1} s ({skipped} not applicable here)",
        report.held,
        report.total_applicable,
        std::time::Duration::from_millis(report.duration_ms).as_secs_f64()
    );
    if untried > 0 {
        say!(
            "{untried} could not be tried, which says nothing about the fence; try again on a machine that does less."
        );
    }
    say!("Each attempt was first run without the fence, where it got through.");
}
