//! Looks at the writable roots of a session for as long as it lasts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringfence_types::{Access, HeldChange};

use super::examine::ExaminationMode;
use super::finding::{AcceptedPrints, Finding};
use super::journal::{Journal, Others, Record};
use super::{ClearedEnd, ExaminationError, LOOK_AT_MOST, Places, act};
use crate::spec::SandboxSpec;
use crate::survey::{Candidate, Patience, RootHandle, SurveyError, WorkspaceSurvey};

/// How often the roots are looked through while commands run. What is found is made ineffective when it is found a second
/// time: a test that makes a repository and removes it again is left alone.
const PERIOD: Duration = Duration::from_secs(2);
/// A look takes at most this part of the time.
const SHARE: u32 = 40;

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("cannot look through the roots for what the host would execute")]
    Survey(#[from] SurveyError),
    #[error("cannot write down what the roots hold")]
    Journal(#[source] io::Error),
}

/// What mounts keep as it is, and what the survey has seen on its way.
#[derive(Debug, Default)]
pub(crate) struct CoveredPaths {
    fixed: BTreeSet<PathBuf>,
    /// One list for each root, where there was a survey.
    seen: Vec<(PathBuf, Vec<Candidate>)>,
    hooks_of_user: Vec<PathBuf>,
}

impl CoveredPaths {
    pub(crate) fn by(survey: &WorkspaceSurvey) -> Self {
        let mut fixed = BTreeSet::new();
        for root in &survey.roots {
            let held = root.protected.iter().chain(&root.protected_links).chain(&root.held_links);
            let held = held.chain(&root.masks).chain(root.held_places());
            let held = held.chain(root.rewritten.iter().map(|(path, _)| path));
            fixed.extend(held.map(|path| root.path.join(path)));
        }
        let seen = survey.roots.iter().zip(&survey.candidates);
        let seen = seen.map(|(root, candidates)| (root.path.clone(), candidates.clone())).collect();
        Self { fixed, seen, hooks_of_user: survey.hooks_of_user.clone() }
    }

    /// The directories that commands can write to. A git directory elsewhere is as writable as the workspace it belongs to. Through a
    /// layer they write to none: what they make is judged when it lands.
    fn writable(&self, spec: &SandboxSpec) -> Vec<PathBuf> {
        if spec.layer.is_some() {
            return Vec::new();
        }
        let declared = |path: &Path| spec.roots.iter().find(|root| root.path.as_path() == path);
        let mut roots: Vec<PathBuf> = spec
            .roots
            .iter()
            .filter(|root| root.access == Access::Write)
            .map(|root| root.path.as_path().to_owned())
            .collect();
        if spec.roots.first().is_some_and(|root| root.access == Access::Write) {
            let elsewhere = self.seen.iter().map(|(path, _)| path).filter(|path| declared(path).is_none());
            roots.extend(elsewhere.cloned());
        }
        roots.retain(|root| root.is_dir());
        roots
    }
}

type Reporter = Box<dyn Fn(&[HeldChange]) + Send + Sync>;

/// Looks until it is dropped; then once more, if anything may have changed since.
pub(crate) struct Watch {
    shared: Arc<WatchShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Watch")
            .field("roots", &self.shared.places.grounds.len())
            .finish_non_exhaustive()
    }
}

struct WatchShared {
    places: Places,
    journal: Mutex<Option<Journal>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while roots are looked through.
    turn: Mutex<Suspects>,
    reporter: OnceLock<Reporter>,
}

/// Where the look before has found something. Not what: a command could change that between two looks.
type Suspects = BTreeSet<(usize, PathBuf, OsString)>;

#[derive(Default)]
struct State {
    /// Commands that run.
    running: usize,
    /// A thread looks from time to time.
    looking: bool,
    /// Something may have been made since the last look.
    dirty: bool,
    over: bool,
    /// The last look was not made to its end.
    unfinished: bool,
    /// Not returned to a caller yet.
    untold: Vec<HeldChange>,
    /// Found before there was a reporter, and not reported yet.
    unreported: Vec<HeldChange>,
}

impl Watch {
    /// Writes down what is there. Nothing may run yet.
    pub(crate) fn begin(spec: &SandboxSpec, covered: CoveredPaths) -> Result<Self, WatchError> {
        let roots = covered.writable(spec);
        if roots.is_empty() {
            return Ok(Self::of(Places::default(), None));
        }
        let mut grounds = Vec::with_capacity(roots.len());
        let mut candidates = Vec::with_capacity(roots.len());
        for root in &roots {
            let ground = RootHandle::open(root)?;
            candidates.push(match covered.seen.iter().find(|(path, _)| path == root) {
                Some((_, seen)) => seen.clone(),
                None => crate::survey::seek(&ground, Patience::new())?,
            });
            grounds.push(ground);
        }
        let others = Others::read(&spec.registry).map_err(WatchError::Journal)?;
        let mut places = Places {
            grounds,
            outside: outside(spec),
            visible: visible(spec),
            fixed: covered.fixed,
            hooks_of_user: covered.hooks_of_user,
            accepted: BTreeSet::new(),
            at_most: LOOK_AT_MOST,
        };
        let of_host = |places: &Places, mode: ExaminationMode| -> Result<AcceptedPrints, SurveyError> {
            let findings = places.scene(mode, Patience::new()).examine(&candidates)?.into_iter();
            let path = |finding: &Finding| finding.path(&places.grounds);
            Ok(findings.filter(|f| !others.may_have_made(&path(f), &f.print)).map(|f| f.print).collect())
        };
        places.accepted = of_host(&places, ExaminationMode::First)?;
        let known = of_host(&places, ExaminationMode::Strictest)?;
        let record = Record::of(&places, known).map_err(WatchError::Journal)?;
        let journal = others.begin(&record).map_err(WatchError::Journal)?;
        Ok(Self::of(places, Some(journal)))
    }

    fn of(places: Places, journal: Option<Journal>) -> Self {
        let shared = WatchShared {
            places,
            journal: Mutex::new(journal),
            state: Mutex::default(),
            changed: Condvar::new(),
            turn: Mutex::default(),
            reporter: OnceLock::new(),
        };
        Self { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Who is told of each change when it is found. What was found before is told now.
    pub(crate) fn report_to(&self, reporter: Reporter) {
        let first = self.shared.reporter.set(reporter).is_ok();
        debug_assert!(first, "a session has one reporter");
        let waiting = std::mem::take(&mut self.shared.state().unreported);
        self.shared.report(&waiting);
    }

    /// What was found by others.
    pub(crate) fn add(&self, changes: Vec<HeldChange>) {
        self.shared.found(changes);
    }

    /// A command is about to run.
    pub(crate) fn enter(&self) -> io::Result<()> {
        if self.shared.places.grounds.is_empty() {
            return Ok(());
        }
        let mut state = self.shared.state();
        state.running += 1;
        state.dirty = true;
        let looking = std::mem::replace(&mut state.looking, true);
        drop(state);
        if !looking {
            let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = Arc::clone(&self.shared);
            let name = "ringfence-held".to_owned();
            let started = std::thread::Builder::new().name(name).spawn(move || shared.keep_looking());
            self.shared.state().looking = started.is_ok();
            *thread = Some(started?);
        }
        Ok(())
    }

    /// A command and everything that it started is gone.
    pub(crate) fn leave(&self) -> Result<(), ExaminationError> {
        let mut state = self.shared.state();
        state.running = state.running.saturating_sub(1);
        // What others still do is looked at when they end.
        state.dirty = state.running > 0;
        drop(state);
        self.shared.look()
    }

    /// The changes that were held since the last call.
    pub(crate) fn untold(&self) -> Vec<HeldChange> {
        std::mem::take(&mut self.shared.state().untold)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A look that panicked is made again here.
            let _ended = thread.join();
        }
        let State { dirty, unfinished, .. } = *self.shared.state();
        // The reporter is told of one that is not made to its end.
        let looked = if dirty || unfinished { self.shared.look() } else { Ok(()) };
        let journal = self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (journal, looked) {
            (None, _) => {}
            (Some(journal), Ok(())) => journal.end(),
            (Some(journal), Err(_)) => journal.leave(),
        }
    }
}

impl WatchShared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> Result<(), ExaminationError> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let cleared = self.places.clear();
        drop(turn);
        self.state().unfinished = cleared.end != ClearedEnd::Clean;
        self.found(cleared.changes);
        cleared.end.into_result()
    }

    fn keep_looking(&self) {
        let mut pause = PERIOD;
        loop {
            let state = self.state();
            let (mut state, _) = self
                .changed
                .wait_timeout_while(state, pause, |state| !state.over)
                .unwrap_or_else(PoisonError::into_inner);
            // A session may live for days and run nothing: the next command starts another thread.
            if state.over || state.running == 0 {
                state.looking = false;
                return;
            }
            drop(state);
            let begun = Instant::now();
            self.look_at_suspects();
            pause = PERIOD.max(begun.elapsed() * SHARE);
        }
    }

    /// Makes ineffective what was there at the last look too.
    fn look_at_suspects(&self) {
        let mut suspects = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // A look that fails now is made again at the end of the command, and told then.
        let Ok(findings) = self.places.findings() else { return };
        let now: Suspects = findings.iter().map(Finding::place).collect();
        let mut again = findings;
        again.retain(|finding| suspects.contains(&finding.place()));
        let changes = act::neutralise(&self.places.scene_to_act(), &again);
        *suspects = now;
        drop(suspects);
        self.found(changes);
    }

    fn found(&self, changes: Vec<HeldChange>) {
        if changes.is_empty() {
            return;
        }
        self.report(&changes);
        self.state().untold.extend(changes);
    }

    fn report(&self, changes: &[HeldChange]) {
        match self.reporter.get() {
            _ if changes.is_empty() => {}
            Some(report) => report(changes),
            None => self.state().unreported.extend_from_slice(changes),
        }
    }
}

/// Where commands write besides the roots: their home, and all of the state directory, because no user works in it. A root that is
/// closed to them counts too: git of the host would bring them what is in it.
fn outside(spec: &SandboxSpec) -> Vec<PathBuf> {
    let state = spec.registry.parent().map(Path::to_owned);
    let closed = spec.roots.iter().filter(|root| root.access == Access::None);
    let closed = closed.map(|root| root.path.as_path().to_owned());
    real(&state.into_iter().chain([spec.home.clone()]).chain(closed).collect::<Vec<_>>())
}

fn visible(spec: &SandboxSpec) -> Vec<PathBuf> {
    let shown = spec.roots.iter().filter(|root| root.access != Access::None);
    real(&shown.map(|root| root.path.as_path().to_owned()).collect::<Vec<_>>())
}

pub(super) fn real(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())).collect()
}
