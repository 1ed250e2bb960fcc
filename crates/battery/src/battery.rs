use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ringfence_types::{ByteString, Control, Limits, NetMode};
use serde::Serialize;

use super::attempt::{Attempt, AttemptBody, AttemptClass, ControlRequirement, RefusalMeaning};
use super::evidence::{TrialEvidence, start_line};
use super::fence::{FenceRequest, FenceResponse, FenceUnderTest, NoFence};
use super::host::HostFeatures;
use super::judge::ObservedEffect;
use super::suite;
use super::world::{AttackWorld, SharedWorld};

/// Paths and limits for the battery, which it must not detect by itself.
#[derive(Clone, Debug)]
pub struct BatterySetup {
    /// This program; it is run again as `<exe> __attempt …`.
    pub exe: PathBuf,
    /// An existing directory for the worlds. Its name is short (Unix socket names hold 108 bytes), and it is
    /// closed to other users, because worlds contain set-user-id programs.
    pub base: PathBuf,
    /// The home of the user who runs it; listed from inside, never changed.
    pub home: Option<PathBuf>,
    /// Where Ringfence keeps its ledger; opened from inside, never written.
    pub state: Option<PathBuf>,
    /// Number of concurrent attempts.
    pub workers: usize,
    /// Run only attempts whose id begins with this.
    pub only: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum AttemptVerdict {
    /// It works without the fence and fails inside.
    Held,
    /// It works inside as well.
    Escaped { what: Vec<String> },
    /// It fails without the fence too, so it proves nothing.
    ControlFailed { why: String },
    /// This machine cannot show it, for a verified reason.
    NotApplicable { why: String },
    /// It never began inside, or the machine is too slow for it.
    NotRun { why: String },
}

#[derive(Clone, Debug, Serialize)]
pub struct AttemptResult {
    pub id: &'static str,
    pub class: AttemptClass,
    pub title: &'static str,
    pub from: &'static str,
    pub controls: &'static [Control],
    #[serde(flatten)]
    pub verdict: AttemptVerdict,
    pub duration_ms: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct BatteryReport {
    pub results: Vec<AttemptResult>,
    pub held: usize,
    /// Attempts whose control got through: those that prove something about the fence.
    pub total_applicable: usize,
    pub duration_ms: u64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatteryError {
    #[error("cannot copy the program into `{base}`", base = base.display())]
    Program { base: PathBuf, source: io::Error },
    #[error("no attempt has an id that begins with `{0}`")]
    NoSuchAttempt(String),
}

impl AttemptVerdict {
    /// Whether the result is unknown for a reason that may pass.
    fn is_untried(&self) -> bool {
        matches!(self, Self::ControlFailed { .. } | Self::NotRun { .. })
    }
}

/// How often an attempt without a result is repeated, alone.
const AGAIN: usize = 2;

/// Runs every attempt with and without `fence`.
pub fn run_battery(
    fence: &dyn FenceUnderTest,
    setup: &BatterySetup,
    on_progress: &mut dyn FnMut(&AttemptResult),
) -> Result<BatteryReport, BatteryError> {
    let begun = Instant::now();
    let chosen = chosen(setup.only.as_deref())?;
    let ground = ground(setup)?;
    let next = AtomicUsize::new(0);
    let (report, reports) = mpsc::channel();
    let mut results = Vec::with_capacity(chosen.len());
    std::thread::scope(|scope| {
        for _ in 0..setup.workers.max(1) {
            let (report, next, ground, chosen) = (report.clone(), &next, &ground, &chosen);
            scope.spawn(move || {
                while let Some(attempt) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = report.send(try_one(fence, ground, attempt));
                }
            });
        }
        drop(report);
        for result in reports {
            if !result.verdict.is_untried() {
                on_progress(&result);
            }
            results.push(result);
        }
    });
    for result in results.iter_mut().filter(|result| result.verdict.is_untried()) {
        try_again(fence, &ground, result);
        on_progress(result);
    }
    let _ = fs::remove_file(&ground.program);
    Ok(BatteryReport::new(results, elapsed_ms(begun)))
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Attempt>, BatteryError> {
    let wanted = |attempt: &&Attempt| only.is_none_or(|prefix| attempt.id.starts_with(prefix));
    let chosen: Vec<_> = suite::attempts().filter(wanted).collect();
    match only {
        Some(prefix) if chosen.is_empty() => Err(BatteryError::NoSuchAttempt(prefix.to_owned())),
        _ => Ok(chosen),
    }
}

// One copy, which worlds link: the installed program itself must never be a file of a writable workspace.
fn ground(setup: &BatterySetup) -> Result<SharedWorld, BatteryError> {
    let failed = |source| BatteryError::Program { base: setup.base.clone(), source };
    let base = setup.base.canonicalize().map_err(failed)?;
    let program = base.join("program");
    fs::copy(&setup.exe, &program).map_err(failed)?;
    let (home, state) = (setup.home.clone(), setup.state.clone());
    Ok(SharedWorld { base, program, home, state, host: HostFeatures::look() })
}

/// Repeats an attempt alone, because a busy machine can starve attempts that wait.
fn try_again(fence: &dyn FenceUnderTest, ground: &SharedWorld, result: &mut AttemptResult) {
    let Some(attempt) = suite::attempts().find(|attempt| attempt.id == result.id) else { return };
    for _ in 0..AGAIN {
        *result = try_one(fence, ground, attempt);
        if !result.verdict.is_untried() {
            return;
        }
    }
}

fn try_one(fence: &dyn FenceUnderTest, ground: &SharedWorld, attempt: &'static Attempt) -> AttemptResult {
    let begun = Instant::now();
    let verdict = match (attempt.unfit)(&ground.host) {
        Some(why) => AttemptVerdict::NotApplicable { why },
        None => control(ground, attempt).unwrap_or_else(|| inside(fence, ground, attempt)),
    };
    AttemptResult {
        id: attempt.id,
        class: attempt.class,
        title: attempt.title,
        from: attempt.from,
        controls: attempt.controls,
        verdict,
        duration_ms: elapsed_ms(begun),
    }
}

/// `None` if the attempt got through without the fence, as it must. A loaded machine gets a second chance.
fn control(ground: &SharedWorld, attempt: &Attempt) -> Option<AttemptVerdict> {
    control_once(ground, attempt).and_then(|_| control_once(ground, attempt))
}

fn control_once(ground: &SharedWorld, attempt: &Attempt) -> Option<AttemptVerdict> {
    let trial = match Trial::run(&NoFence, ground, attempt, "control", NetMode::Full) {
        Ok(TrialOutcome::Ran(trial)) => trial,
        Ok(TrialOutcome::Refused(why)) => return Some(AttemptVerdict::ControlFailed { why }),
        Err(error) => {
            return Some(AttemptVerdict::ControlFailed { why: format!("cannot set it up: {error}") });
        }
    };
    if trial.proves(attempt.proof) {
        return None;
    }
    Some(match (attempt.excuse)(&ground.host, &trial.evidence) {
        Some(why) => AttemptVerdict::NotApplicable { why },
        None => AttemptVerdict::ControlFailed { why: trial.explain() },
    })
}

/// Runs network attempts in every network mode of the fence.
fn inside(fence: &dyn FenceUnderTest, ground: &SharedWorld, attempt: &Attempt) -> AttemptVerdict {
    let networks = match attempt.class {
        AttemptClass::Network => fence.networks(),
        AttemptClass::Files | AttemptClass::System => &[NetMode::None],
    };
    let verdicts = networks.iter().map(|net| inside_with(*net, fence, ground, attempt));
    verdicts.into_iter().find(|verdict| *verdict != AttemptVerdict::Held).unwrap_or(AttemptVerdict::Held)
}

fn inside_with(
    net: NetMode,
    fence: &dyn FenceUnderTest,
    ground: &SharedWorld,
    attempt: &Attempt,
) -> AttemptVerdict {
    match Trial::run(fence, ground, attempt, "inside", net) {
        Ok(TrialOutcome::Ran(Trial { too_slow: Some(why), .. })) => AttemptVerdict::NotRun { why },
        Ok(TrialOutcome::Ran(trial)) => trial.verdict(),
        Ok(TrialOutcome::Refused(_)) if attempt.refusal == RefusalMeaning::Holds => AttemptVerdict::Held,
        Ok(TrialOutcome::Refused(why)) => AttemptVerdict::NotRun { why },
        Err(error) => AttemptVerdict::NotRun { why: error.to_string() },
    }
}

/// One judged run in one world.
struct Trial {
    evidence: TrialEvidence,
    effects: Vec<ObservedEffect>,
    too_slow: Option<String>,
}

enum TrialOutcome {
    Ran(Trial),
    Refused(String),
}

impl Trial {
    fn run(
        fence: &dyn FenceUnderTest,
        ground: &SharedWorld,
        attempt: &Attempt,
        kind: &str,
        net: NetMode,
    ) -> io::Result<TrialOutcome> {
        let world = AttackWorld::build(ground, &format!("{}-{kind}", attempt.id), attempt)?;
        let limits = (attempt.limits)(Limits { wall_ms: Some(10_000), ..Limits::default() });
        let (argv, caller_env) = (argv(attempt, &world)?, world.caller_env());
        let request = FenceRequest {
            workspace: world.workspace(),
            argv: &argv,
            caller_env: &caller_env,
            limits: &limits,
            net,
            scratch: world.scratch(),
        };
        let over = AtomicBool::new(false);
        let (answer, stalled) = std::thread::scope(|scope| {
            let ticker = scope.spawn(|| longest_stall(&over));
            if let Some(meanwhile) = attempt.meanwhile {
                let world = &world;
                scope.spawn(move || meanwhile(world));
            }
            let answer = fence.run(&request);
            over.store(true, Ordering::Relaxed);
            world.finish();
            (answer, ticker.join().unwrap_or_default())
        });
        Ok(match answer? {
            FenceResponse::Refused(why) => TrialOutcome::Refused(why),
            FenceResponse::Ran(output) => {
                let evidence = TrialEvidence::new(output.stdout, output.stderr, output.exit);
                let evidence = TrialEvidence { stalled, ..evidence };
                let effects = (attempt.judge)(&world, &evidence);
                let too_slow = (attempt.too_slow)(&world, &evidence);
                TrialOutcome::Ran(Self { evidence, effects, too_slow })
            }
        })
    }

    fn proves(&self, proof: ControlRequirement) -> bool {
        let happened = self.effects.iter().filter(|effect| effect.happened).count();
        match proof {
            ControlRequirement::Every => happened > 0 && happened == self.effects.len(),
            ControlRequirement::Some => happened > 0,
        }
    }

    fn verdict(&self) -> AttemptVerdict {
        let what: Vec<String> =
            self.effects.iter().filter(|effect| effect.happened).map(|effect| effect.what.clone()).collect();
        if !what.is_empty() {
            return AttemptVerdict::Escaped { what };
        }
        match &self.evidence.broken {
            Some(why) => AttemptVerdict::NotRun { why: why.clone() },
            None if !self.evidence.started => AttemptVerdict::NotRun { why: self.evidence.summary() },
            None => AttemptVerdict::Held,
        }
    }

    fn explain(&self) -> String {
        let missing =
            self.effects.iter().filter(|effect| !effect.happened).map(|effect| effect.what.as_str());
        let missing: Vec<&str> = missing.take(3).collect();
        format!("did not happen: {} ({})", missing.join(", "), self.evidence.summary())
    }
}

/// The largest delay among many short sleeps.
fn longest_stall(over: &AtomicBool) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(TICK);
        longest = longest.max(begun.elapsed().saturating_sub(TICK));
    }
    longest
}

fn argv(attempt: &Attempt, world: &AttackWorld) -> io::Result<Vec<OsString>> {
    let arena = &world.arena;
    Ok(match attempt.body {
        AttemptBody::Code(_) => vec![
            world.workspace().join("attempt").into_os_string(),
            "__attempt".into(),
            attempt.id.into(),
            serde_json::to_string(arena)?.into(),
        ],
        AttemptBody::Shell(script) => vec![
            "/bin/sh".into(),
            "-c".into(),
            format!("echo '{}'\n{script}", start_line()).into(),
            "sh".into(),
            path(&arena.workspace),
            path(&arena.outside),
            arena.nonce.clone().into(),
            arena.ports.tcp.to_string().into(),
        ],
    })
}

fn path(bytes: &ByteString) -> OsString {
    Path::new(bytes.as_os_str()).into()
}

fn elapsed_ms(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl BatteryReport {
    fn new(mut results: Vec<AttemptResult>, duration_ms: u64) -> Self {
        results.sort_by_key(|result| (result.class, result.id));
        let count =
            |wanted: fn(&AttemptVerdict) -> bool| results.iter().filter(|r| wanted(&r.verdict)).count();
        let held = count(|verdict| matches!(verdict, AttemptVerdict::Held));
        let silent =
            count(|verdict| matches!(verdict, AttemptVerdict::NotApplicable { .. }) || verdict.is_untried());
        let total_applicable = results.len() - silent;
        Self { results, held, total_applicable, duration_ms }
    }

    /// Whether every attempt was held or not applicable.
    pub fn is_perfect(&self) -> bool {
        let fine = |verdict: &AttemptVerdict| {
            matches!(verdict, AttemptVerdict::Held | AttemptVerdict::NotApplicable { .. })
        };
        self.held > 0 && self.results.iter().all(|result| fine(&result.verdict))
    }

    /// Whether no attempt escaped and at least one was held. An attempt without a result is no escape.
    pub fn is_held(&self) -> bool {
        self.held > 0
            && !self.results.iter().any(|result| matches!(result.verdict, AttemptVerdict::Escaped { .. }))
    }

    /// Number of attempts without a result.
    pub fn untried(&self) -> usize {
        self.results.iter().filter(|result| result.verdict.is_untried()).count()
    }

    /// The controls that attempts got past, with those attempts.
    pub fn escaped_controls(&self) -> BTreeMap<Control, Vec<&'static str>> {
        self.by_control(|verdict| matches!(verdict, AttemptVerdict::Escaped { .. }))
    }

    /// The controls that stopped attempts, with those attempts.
    pub fn held_controls(&self) -> BTreeMap<Control, Vec<&'static str>> {
        self.by_control(|verdict| matches!(verdict, AttemptVerdict::Held))
    }

    fn by_control(&self, wanted: fn(&AttemptVerdict) -> bool) -> BTreeMap<Control, Vec<&'static str>> {
        let mut found: BTreeMap<Control, Vec<&'static str>> = BTreeMap::new();
        for result in self.results.iter().filter(|result| wanted(&result.verdict)) {
            for control in result.controls {
                found.entry(*control).or_default().push(result.id);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::ExitReason;

    fn trial(stdout: &str, happened: &[bool]) -> Trial {
        let evidence =
            TrialEvidence::new(stdout.as_bytes().to_vec(), Vec::new(), ExitReason::Code { code: 0 });
        let effects =
            happened.iter().map(|&happened| ObservedEffect { what: "it".to_owned(), happened }).collect();
        Trial { evidence, effects, too_slow: None }
    }

    #[test]
    fn a_control_must_do_all_of_it_or_at_least_some() {
        assert!(trial("", &[true, true]).proves(ControlRequirement::Every));
        assert!(!trial("", &[true, false]).proves(ControlRequirement::Every));
        assert!(trial("", &[true, false]).proves(ControlRequirement::Some));
        assert!(!trial("", &[]).proves(ControlRequirement::Every));
        assert!(!trial("", &[false]).proves(ControlRequirement::Some));
    }

    #[test]
    fn only_an_attempt_that_was_made_can_be_held() {
        let started = start_line();
        assert_eq!(trial(&started, &[false]).verdict(), AttemptVerdict::Held);
        assert!(matches!(trial("", &[false]).verdict(), AttemptVerdict::NotRun { .. }));
        let broken = format!("{started}\nringfence-attempt: broken no fork");
        assert!(matches!(trial(&broken, &[false]).verdict(), AttemptVerdict::NotRun { .. }));
        assert!(matches!(trial(&broken, &[false, true]).verdict(), AttemptVerdict::Escaped { .. }));
    }

    #[test]
    fn what_could_not_be_tried_is_no_escape_and_not_perfect() {
        let slow = || AttemptVerdict::NotRun { why: "slow".to_owned() };
        let report =
            BatteryReport::new(vec![result("a", &[], AttemptVerdict::Held), result("b", &[], slow())], 1);
        assert!(report.is_held() && !report.is_perfect());
        assert_eq!((report.held, report.total_applicable, report.untried()), (1, 1, 1));
        let nothing = BatteryReport::new(vec![result("b", &[], slow())], 1);
        assert!(!nothing.is_held(), "a fence in which nothing could be tried is not known to hold");
    }

    fn result(id: &'static str, controls: &'static [Control], verdict: AttemptVerdict) -> AttemptResult {
        let (class, title, from) = (AttemptClass::Files, "", "");
        AttemptResult { id, class, title, from, controls, verdict, duration_ms: 0 }
    }

    #[test]
    fn the_report_says_which_controls_were_passed() {
        let escaped = AttemptVerdict::Escaped { what: vec!["x".to_owned()] };
        let absent = AttemptVerdict::NotApplicable { why: "no such call".to_owned() };
        let report = BatteryReport::new(
            vec![
                result("a", &[Control::Net], escaped),
                result("b", &[Control::FsRead, Control::Net], AttemptVerdict::Held),
                result("c", &[Control::Syscalls], absent),
            ],
            5,
        );
        assert_eq!((report.held, report.total_applicable), (1, 2));
        assert!(!report.is_perfect() && !report.is_held());
        assert_eq!(report.escaped_controls(), BTreeMap::from([(Control::Net, vec!["a"])]));
        assert_eq!(report.held_controls().get(&Control::FsRead), Some(&vec!["b"]));
    }
}
