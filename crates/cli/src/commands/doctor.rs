//! `ringfence doctor`: what this machine enforces, by trying; `--attack` runs the escape battery.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use ringfence_runtime::Runtime;
use ringfence_runtime::attack::{self, AttemptResult, BatteryReport, Verdict};
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::container::{Engine, EngineKind, Privilege};
use ringfence_runtime::doctor::{self, Examination, Examined, Product, TRIED};
use ringfence_runtime::images::{Images, ImagesError};
use ringfence_types::{Backend, Bytes, Level};
use serde::Serialize;

use crate::args::Doctor;
use crate::commands::run::{self, print_json};
use crate::engine;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{aside, note, say};
use crate::own;
use crate::status::{self, Guarded};

/// The battery found a way out, or the floor is not met.
const NOT_WHOLE: u8 = 1;

pub(crate) fn run(doctor: &Doctor) -> ExitCode {
    let environment = Environment::read();
    let runtime = match run::runtime(&environment, Attendance::Unattended) {
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
struct Examined1<'a> {
    schema: u32,
    #[serde(flatten)]
    examination: &'a Examination,
    agents: &'a [Guarded],
    engines: &'a [FoundEngine],
}

/// A socket at one of the usual places, or the one that was named.
#[derive(Serialize)]
struct FoundEngine {
    socket: Bytes,
    kind: Option<EngineKind>,
    version: Option<String>,
    privilege: Option<Privilege>,
    /// Why it cannot be used.
    failure: Option<String>,
}

fn engines(doctor: &Doctor, environment: &Environment) -> Vec<FoundEngine> {
    let named = doctor.container.engine.engine.is_some();
    let sockets = if named {
        vec![engine::socket(&doctor.container.engine, environment)]
    } else {
        engine::places(environment).into_iter().filter(|place| place.exists()).collect()
    };
    sockets.iter().map(|socket| found(socket)).collect()
}

fn found(socket: &Path) -> FoundEngine {
    let shown = Bytes::from(socket);
    match Engine::connect(socket) {
        Ok(engine) => FoundEngine {
            socket: shown,
            kind: Some(engine.kind),
            version: Some(engine.version.clone()),
            privilege: Some(engine.privilege),
            failure: None,
        },
        Err(error) => FoundEngine {
            socket: shown,
            kind: None,
            version: None,
            privilege: None,
            failure: Some(error::chain(&error)),
        },
    }
}

fn print_engines(engines: &[FoundEngine]) {
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

fn examine(doctor: &Doctor, environment: &Environment, runtime: &Runtime, base: &Path) -> ExitCode {
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
        print_json(&Examined1 { schema: 1, examination: &examination, agents: &agents, engines: &engines });
    } else {
        print_examination(&examination, &engines);
        say!("\nagents");
        status::lines(&agents).iter().for_each(|line| say!("  {line}"));
        own::tell_where_it_lies();
    }
    if examination.chosen.is_some() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WHOLE) }
}

fn print_examination(examination: &Examination, engines: &[FoundEngine]) {
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
        Some(backend) => say!("\n`ringfence run` uses `{backend}` here: every control is enforced."),
        None => {
            say!("\nNo backend enforces every control here, so `ringfence run` refuses. See the fixes above.")
        }
    }
}

fn print_backend(examined: &Examined) {
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

fn print_level(what: &str, level: &Level) {
    let (detail, fix) = match level {
        Level::Enforced { by } | Level::Declared { by } => (by.clone(), None),
        Level::Partial { by, missing, .. } => (format!("{by}; not: {missing}"), None),
        Level::Absent { reason, fix } => (reason.clone(), Some(fix).filter(|fix| !fix.is_empty())),
    };
    say!("  {what:<9} {:<9} {detail}", level.word());
    if let Some(fix) = fix {
        say!("            fix: {fix}");
    }
}

fn shown(text: &str) -> String {
    Bytes::from(text).display()
}

fn attack(doctor: &Doctor, environment: &Environment, runtime: &Runtime, base: &Path) -> ExitCode {
    let backend = doctor.backend.unwrap_or(Backend::Native);
    let state_dir = base.join("state");
    let image = engine::in_image(&doctor.container, environment);
    let product = Product { state_dir, backend, image, home: environment.home.clone() };
    if let Err(code) = list_image(&product, runtime) {
        return code;
    }
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(error) => return error::failed_text(&format!("cannot find this program: {error}"), None),
    };
    let setup = attack::Setup {
        exe,
        base: base.to_owned(),
        home: environment.home.clone(),
        state: host::state_dir(environment).ok(),
        workers: 2,
        only: doctor.only.clone(),
    };
    let mut progress = Progress::new(doctor);
    let report = match attack::run_battery(&product, &setup, &mut |result| progress.show(result)) {
        Ok(report) => report,
        Err(error) => return error::failed(&error, None),
    };
    progress.clear();
    if let Err(error) = runtime.ledger().append(&doctor::battery_event(&report, backend)) {
        return error::failed(&error, error.hint());
    }
    show(doctor, &report, backend);
    if report.is_held() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WHOLE) }
}

/// The battery's own configuration knows the image that was named, as the operator's does.
fn list_image(product: &Product, runtime: &Runtime) -> Result<(), ExitCode> {
    let failed = |error: ImagesError| error::failed(&error, error.hint().as_deref());
    let Some(image) = &product.image else { return Ok(()) };
    let images = Images::load(&runtime.setup().config_dir).map_err(failed)?;
    let listed = images.find(&image.name).ok_or_else(|| failed(ImagesError::Unknown(image.name.clone())))?;
    Images::add(&product.config_dir(), listed.clone()).map(drop).map_err(failed)
}

/// One line that is overwritten, on a terminal only; whatever did not hold stays.
struct Progress {
    live: bool,
    quiet: bool,
    done: usize,
    total: usize,
}

impl Progress {
    fn new(doctor: &Doctor) -> Self {
        let total =
            attack::attempts().filter(|a| doctor.only.as_deref().is_none_or(|p| a.id.starts_with(p))).count();
        Self { live: std::io::stderr().is_terminal() && !doctor.json, quiet: doctor.json, done: 0, total }
    }

    fn show(&mut self, result: &AttemptResult) {
        self.done += 1;
        if !self.quiet && !matches!(result.verdict, Verdict::Held | Verdict::NotApplicable { .. }) {
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
        Verdict::Held => ("held", String::new()),
        Verdict::Escaped { what } => ("ESCAPED", what.join(", ")),
        Verdict::ControlFailed { why } => (UNTRIED, format!("not even without the fence: {why}")),
        Verdict::NotApplicable { why } => ("not applicable", why.clone()),
        Verdict::NotRun { why } => (UNTRIED, why.clone()),
    };
    format!("{:<32} {word:<14} {}  {}", result.id, result.title, shown(&detail)).trim_end().to_owned()
}

#[derive(Serialize)]
struct Attacked<'a> {
    schema: u32,
    backend: Backend,
    whole: bool,
    #[serde(flatten)]
    report: &'a BatteryReport,
}

fn show(doctor: &Doctor, report: &BatteryReport, backend: Backend) {
    if doctor.json {
        return print_json(&Attacked { schema: 1, backend, whole: report.is_perfect(), report });
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
