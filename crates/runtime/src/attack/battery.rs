use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ringfence_types::{Bytes, Control, Limits, NetMode};
use serde::Serialize;

use super::attempt::{Attempt, Body, Class, Proof, Refusal};
use super::evidence::{Evidence, start_line};
use super::fence::{Answer, Fence, NoFence, Request};
use super::host::Host;
use super::judge::Effect;
use super::suite;
use super::world::{Ground, World};

/// What the battery needs to know that it must not find out by itself.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This program; it is run again as `<exe> __attempt …`.
    pub exe: PathBuf,
    /// An existing directory for the worlds: with a short name (Unix socket names hold 108 bytes), and closed to
    /// other users, since worlds hold set-user-id programs.
    pub base: PathBuf,
    /// The home of the person who runs it: looked at from inside, never touched.
    pub home: Option<PathBuf>,
    /// Where Ringfence keeps its ledger; opened from inside, never written.
    pub state: Option<PathBuf>,
    /// Attempts at once.
    pub workers: usize,
    /// Run only attempts whose id begins with this.
    pub only: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// It works without the fence and does not work inside.
    Held,
    /// It works inside as well.
    Escaped { what: Vec<String> },
    /// It could not be tried: it does not work without the fence either, so that nothing is known.
    ControlFailed { why: String },
    /// This machine cannot show it, for a reason that was checked.
    NotApplicable { why: String },
    /// It could not be tried: it never began inside, or the machine is too slow for it.
    NotRun { why: String },
}

#[derive(Clone, Debug, Serialize)]
pub struct AttemptResult {
    pub id: &'static str,
    pub class: Class,
    pub title: &'static str,
    pub from: &'static str,
    pub controls: &'static [Control],
    #[serde(flatten)]
    pub verdict: Verdict,
    pub duration_ms: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct BatteryReport {
    pub results: Vec<AttemptResult>,
    pub held: usize,
    /// Attempts whose control got through: those that say something about the fence.
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

impl Verdict {
    /// Whether nothing is known, for a reason that may be gone a moment later.
    fn is_untried(&self) -> bool {
        matches!(self, Self::ControlFailed { .. } | Self::NotRun { .. })
    }
}

/// How often an attempt that could not be tried is made again, with nothing beside it.
const AGAIN: usize = 2;

/// Runs every attempt with and without `fence`.
pub fn run_battery(
    fence: &dyn Fence,
    setup: &Setup,
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

// One copy, so that worlds can have it by hard link: the installed program itself must never be a file of a
// writable workspace.
fn ground(setup: &Setup) -> Result<Ground, BatteryError> {
    let failed = |source| BatteryError::Program { base: setup.base.clone(), source };
    let base = setup.base.canonicalize().map_err(failed)?;
    let program = base.join("program");
    fs::copy(&setup.exe, &program).map_err(failed)?;
    let (home, state) = (setup.home.clone(), setup.state.clone());
    Ok(Ground { base, program, home, state, host: Host::look() })
}

/// A busy machine keeps attempts from what they wait for. Alone they have it to themselves.
fn try_again(fence: &dyn Fence, ground: &Ground, result: &mut AttemptResult) {
    let Some(attempt) = suite::attempts().find(|attempt| attempt.id == result.id) else { return };
    for _ in 0..AGAIN {
        *result = try_one(fence, ground, attempt);
        if !result.verdict.is_untried() {
            return;
        }
    }
}

fn try_one(fence: &dyn Fence, ground: &Ground, attempt: &'static Attempt) -> AttemptResult {
    let begun = Instant::now();
    let verdict = match (attempt.unfit)(&ground.host) {
        Some(why) => Verdict::NotApplicable { why },
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

/// `None` when the attempt got through without the fence, as it must. A loaded machine gets a second chance.
fn control(ground: &Ground, attempt: &Attempt) -> Option<Verdict> {
    control_once(ground, attempt).and_then(|_| control_once(ground, attempt))
}

fn control_once(ground: &Ground, attempt: &Attempt) -> Option<Verdict> {
    let trial = match Trial::run(&NoFence, ground, attempt, ("control", NetMode::Full)) {
        Ok(Outcome::Ran(trial)) => trial,
        Ok(Outcome::Refused(why)) => return Some(Verdict::ControlFailed { why }),
        Err(error) => return Some(Verdict::ControlFailed { why: format!("cannot set it up: {error}") }),
    };
    if trial.proves(attempt.proof) {
        return None;
    }
    Some(match (attempt.excuse)(&ground.host, &trial.evidence) {
        Some(why) => Verdict::NotApplicable { why },
        None => Verdict::ControlFailed { why: trial.explain() },
    })
}

/// What is tried on the network is tried in every network that the fence has.
fn inside(fence: &dyn Fence, ground: &Ground, attempt: &Attempt) -> Verdict {
    let networks = match attempt.class {
        Class::Network => fence.networks(),
        Class::Files | Class::System => &[NetMode::None],
    };
    let verdicts = networks.iter().map(|net| inside_with(*net, fence, ground, attempt));
    verdicts.into_iter().find(|verdict| *verdict != Verdict::Held).unwrap_or(Verdict::Held)
}

fn inside_with(net: NetMode, fence: &dyn Fence, ground: &Ground, attempt: &Attempt) -> Verdict {
    match Trial::run(fence, ground, attempt, ("inside", net)) {
        Ok(Outcome::Ran(Trial { too_slow: Some(why), .. })) => Verdict::NotRun { why },
        Ok(Outcome::Ran(trial)) => trial.verdict(),
        Ok(Outcome::Refused(_)) if attempt.refusal == Refusal::Holds => Verdict::Held,
        Ok(Outcome::Refused(why)) => Verdict::NotRun { why },
        Err(error) => Verdict::NotRun { why: error.to_string() },
    }
}

/// One run in one world, judged.
struct Trial {
    evidence: Evidence,
    effects: Vec<Effect>,
    too_slow: Option<String>,
}

enum Outcome {
    Ran(Trial),
    Refused(String),
}

impl Trial {
    fn run(
        fence: &dyn Fence,
        ground: &Ground,
        attempt: &Attempt,
        (kind, net): (&str, NetMode),
    ) -> io::Result<Outcome> {
        let world = World::build(ground, &format!("{}-{kind}", attempt.id), attempt)?;
        let limits = (attempt.limits)(Limits { wall_ms: Some(10_000), ..Limits::default() });
        let (argv, caller_env) = (argv(attempt, &world)?, world.caller_env());
        let request = Request {
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
            Answer::Refused(why) => Outcome::Refused(why),
            Answer::Ran(output) => {
                let evidence = Evidence::new(output.stdout, output.stderr, output.exit);
                let evidence = Evidence { stalled, ..evidence };
                let effects = (attempt.judge)(&world, &evidence);
                let too_slow = (attempt.too_slow)(&world, &evidence);
                Outcome::Ran(Self { evidence, effects, too_slow })
            }
        })
    }

    fn proves(&self, proof: Proof) -> bool {
        let happened = self.effects.iter().filter(|effect| effect.happened).count();
        match proof {
            Proof::Every => happened > 0 && happened == self.effects.len(),
            Proof::Some => happened > 0,
        }
    }

    fn verdict(&self) -> Verdict {
        let what: Vec<String> =
            self.effects.iter().filter(|effect| effect.happened).map(|effect| effect.what.clone()).collect();
        if !what.is_empty() {
            return Verdict::Escaped { what };
        }
        match &self.evidence.broken {
            Some(why) => Verdict::NotRun { why: why.clone() },
            None if !self.evidence.started => Verdict::NotRun { why: self.evidence.summary() },
            None => Verdict::Held,
        }
    }

    fn explain(&self) -> String {
        let missing =
            self.effects.iter().filter(|effect| !effect.happened).map(|effect| effect.what.as_str());
        let missing: Vec<&str> = missing.take(3).collect();
        format!("did not happen: {} ({})", missing.join(", "), self.evidence.summary())
    }
}

/// By how much the worst of many short sleeps was too long.
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

fn argv(attempt: &Attempt, world: &World) -> io::Result<Vec<OsString>> {
    let arena = &world.arena;
    Ok(match attempt.body {
        Body::Code(_) => vec![
            world.workspace().join("attempt").into_os_string(),
            "__attempt".into(),
            attempt.id.into(),
            serde_json::to_string(arena)?.into(),
        ],
        Body::Shell(script) => vec![
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

fn path(bytes: &Bytes) -> OsString {
    Path::new(bytes.as_os_str()).into()
}

fn elapsed_ms(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl BatteryReport {
    fn new(mut results: Vec<AttemptResult>, duration_ms: u64) -> Self {
        results.sort_by_key(|result| (result.class, result.id));
        let count = |wanted: fn(&Verdict) -> bool| results.iter().filter(|r| wanted(&r.verdict)).count();
        let held = count(|verdict| matches!(verdict, Verdict::Held));
        let silent =
            count(|verdict| matches!(verdict, Verdict::NotApplicable { .. }) || verdict.is_untried());
        let total_applicable = results.len() - silent;
        Self { results, held, total_applicable, duration_ms }
    }

    /// Everything that could be tried was held, and nothing was left untried without a checked reason.
    pub fn is_perfect(&self) -> bool {
        let fine = |verdict: &Verdict| matches!(verdict, Verdict::Held | Verdict::NotApplicable { .. });
        self.held > 0 && self.results.iter().all(|result| fine(&result.verdict))
    }

    /// Nothing got through, and something was tried. What could not be tried is no escape.
    pub fn is_held(&self) -> bool {
        self.held > 0 && !self.results.iter().any(|result| matches!(result.verdict, Verdict::Escaped { .. }))
    }

    /// How many attempts could not be tried.
    pub fn untried(&self) -> usize {
        self.results.iter().filter(|result| result.verdict.is_untried()).count()
    }

    /// The controls that attempts got past, with those attempts.
    pub fn escaped_controls(&self) -> BTreeMap<Control, Vec<&'static str>> {
        self.by_control(|verdict| matches!(verdict, Verdict::Escaped { .. }))
    }

    /// The controls that stopped attempts, with those attempts.
    pub fn held_controls(&self) -> BTreeMap<Control, Vec<&'static str>> {
        self.by_control(|verdict| matches!(verdict, Verdict::Held))
    }

    fn by_control(&self, wanted: fn(&Verdict) -> bool) -> BTreeMap<Control, Vec<&'static str>> {
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
    use ringfence_types::Exit;

    fn trial(stdout: &str, happened: &[bool]) -> Trial {
        let evidence = Evidence::new(stdout.as_bytes().to_vec(), Vec::new(), Exit::Code { code: 0 });
        let effects = happened.iter().map(|&happened| Effect { what: "it".to_owned(), happened }).collect();
        Trial { evidence, effects, too_slow: None }
    }

    #[test]
    fn a_control_must_do_all_of_it_or_at_least_some() {
        assert!(trial("", &[true, true]).proves(Proof::Every));
        assert!(!trial("", &[true, false]).proves(Proof::Every));
        assert!(trial("", &[true, false]).proves(Proof::Some));
        assert!(!trial("", &[]).proves(Proof::Every));
        assert!(!trial("", &[false]).proves(Proof::Some));
    }

    #[test]
    fn only_an_attempt_that_was_made_can_be_held() {
        let started = start_line();
        assert_eq!(trial(&started, &[false]).verdict(), Verdict::Held);
        assert!(matches!(trial("", &[false]).verdict(), Verdict::NotRun { .. }));
        let broken = format!("{started}\nringfence-attempt: broken no fork");
        assert!(matches!(trial(&broken, &[false]).verdict(), Verdict::NotRun { .. }));
        assert!(matches!(trial(&broken, &[false, true]).verdict(), Verdict::Escaped { .. }));
    }

    #[test]
    fn what_could_not_be_tried_is_no_escape_and_not_perfect() {
        let slow = || Verdict::NotRun { why: "slow".to_owned() };
        let report = BatteryReport::new(vec![result("a", &[], Verdict::Held), result("b", &[], slow())], 1);
        assert!(report.is_held() && !report.is_perfect());
        assert_eq!((report.held, report.total_applicable, report.untried()), (1, 1, 1));
        let nothing = BatteryReport::new(vec![result("b", &[], slow())], 1);
        assert!(!nothing.is_held(), "a fence in which nothing could be tried is not known to hold");
    }

    fn result(id: &'static str, controls: &'static [Control], verdict: Verdict) -> AttemptResult {
        let (class, title, from) = (Class::Files, "", "");
        AttemptResult { id, class, title, from, controls, verdict, duration_ms: 0 }
    }

    #[test]
    fn the_report_says_which_controls_were_passed() {
        let escaped = Verdict::Escaped { what: vec!["x".to_owned()] };
        let absent = Verdict::NotApplicable { why: "no such call".to_owned() };
        let report = BatteryReport::new(
            vec![
                result("a", &[Control::Net], escaped),
                result("b", &[Control::FsRead, Control::Net], Verdict::Held),
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
