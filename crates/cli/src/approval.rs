//! Asking the person at the terminal.
//!
//! INVARIANT: whatever is not a clear yes after the question was shown is a no: Enter, Ctrl-C, the end of input, silence, a
//! terminal that goes away, keys that were typed before.

mod device;
mod operator;
mod prompt;
mod screen;

use std::io::Write as _;
use std::time::Duration;

use ringfence_runtime::approval::{Reply, Say, Terms, Waiting};
use ringfence_runtime::authz::Judgement;
use ringfence_runtime::ledger::{ApprovalAnswer, ApprovalDecision, ApprovalRequest};
use ringfence_runtime::{Approver, Heard};
use ringfence_types::{Bytes, Principal};

use crate::environment::Environment;
use crate::explain::{self, Style};
use device::{Device, Silence};
use prompt::{Manner, Page};
use screen::{Mark, Screen};

pub(crate) use operator::{Need, authenticate, has_ledger, here, record, require};
pub(crate) use prompt::{Explains, Prompt, span};

/// How long somebody who started a command has for the word that it asks for.
const PATIENCE: Duration = Duration::from_secs(600);

/// Answers that are none; then the answer is no.
const TRIES: u32 = 20;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const ESCAPE: u8 = 27;
const DELETE: u8 = 127;

/// A question as it is shown at a terminal, wherever it waits.
pub(crate) trait Posed {
    fn request(&self) -> &ApprovalRequest;
    /// How long it waits yet.
    fn left(&self) -> Duration;
    /// What somebody else has answered meanwhile.
    fn decided(&self) -> Option<ApprovalDecision>;

    /// Every part with its decision, where this process has judged it.
    fn judgement(&self) -> Option<&Judgement> {
        None
    }
}

impl Posed for Waiting<'_> {
    fn request(&self) -> &ApprovalRequest {
        Waiting::request(self)
    }

    fn left(&self) -> Duration {
        Waiting::left(self)
    }

    fn decided(&self) -> Option<ApprovalDecision> {
        Waiting::decided(self)
    }

    fn judgement(&self) -> Option<&Judgement> {
        Waiting::judgement(self)
    }
}

/// The controlling terminal of this process. It is opened when something is asked, and never anything else instead:
/// the standard input belongs to the command.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    variables: Vec<(Bytes, Bytes)>,
    /// `None`: this process runs in a session, whose terminal is the agent's and nobody's who may answer.
    operator: Option<Principal>,
}

impl Terminal {
    pub(crate) fn new(environment: &Environment) -> Self {
        Self { variables: environment.all.clone(), operator: authenticate(environment, Need::Nothing).ok() }
    }

    fn screen(&self) -> Screen {
        let name = self.variables.iter().find(|(name, _)| name.as_slice() == b"TERM");
        Screen::of(name.map(|(_, value)| value.as_slice()))
    }

    /// Asks about a question, and says what came of it.
    pub(crate) fn asked(&self, question: &dyn Posed) -> Heard {
        let Some(operator) = &self.operator else { return Heard::Interrupted };
        let elsewhere = || question.decided().is_some();
        let Some(device) = Device::controlling(question.left(), &elsewhere) else {
            return Heard::Interrupted;
        };
        let mut device = device.on_screen(self.screen());
        let style = Style::of(&self.variables, device.terminal());
        let heard = answer(&mut device, &Conversation::of(question), style);
        match heard {
            Ok((say, reason)) => Heard::Reply(Reply { by: operator.clone(), say, reason }),
            Err(Silence::TimedOut) => Heard::Silence,
            Err(Silence::Interrupted | Silence::Gone) => Heard::Interrupted,
            Err(Silence::Elsewhere) => {
                let text = question.decided().map(|decision| told(&decision)).unwrap_or_default();
                let _gone = device.write(&format!("\n{text}\n"));
                Heard::Elsewhere
            }
        }
    }

    /// Shows a question that was answered on the command line, and asks whether that is meant.
    pub(crate) fn confirmed(&self, question: &dyn Posed, meant: &str) -> Option<bool> {
        self.operator.as_ref()?;
        let elsewhere = || question.decided().is_some();
        let mut device = Device::controlling(question.left(), &elsewhere)?.on_screen(self.screen());
        let style = Style::of(&self.variables, device.terminal());
        Some(confirm(&mut device, &Conversation::of(question).prompt, (meant, style)).unwrap_or(false))
    }

    /// Shows what a yes would permit, and takes the whole word for it: for what is no question of a session.
    pub(crate) fn permitted(&self, shown: &str, meant: &str) -> bool {
        let Some(_operator) = &self.operator else { return false };
        let Some(device) = Device::controlling(PATIENCE, &|| false) else { return false };
        let mut device = device.on_screen(self.screen());
        let style = Style::of(&self.variables, device.terminal());
        permit(&mut device, shown, (meant, style)).unwrap_or(false)
    }
}

impl Approver for Terminal {
    fn is_there(&mut self) -> bool {
        self.operator.is_some() && device::foreground().is_some()
    }

    fn ask(&mut self, question: &Waiting<'_>) -> Heard {
        self.asked(question)
    }

    fn tell(&mut self, text: &str) {
        let Some(mut terminal) = device::foreground() else { return };
        // An answer that cannot be shown is one all the same. A terminal in raw mode needs the carriage return.
        let _gone = write!(terminal, "{text}\r\n");
    }
}

/// A decision of somebody else, in a line.
pub(crate) fn told(decision: &ApprovalDecision) -> String {
    let reason = decision.reason.as_deref().map(|reason| format!(" ({})", Bytes::from(reason).display()));
    format!("answered elsewhere: {} by {}{}", word(decision.answer), decision.by, reason.unwrap_or_default())
}

pub(crate) fn word(answer: ApprovalAnswer) -> &'static str {
    match answer {
        ApprovalAnswer::Once => "allowed once",
        ApprovalAnswer::Session => "allowed for this session",
        ApprovalAnswer::AlwaysHere => "always allowed here",
        ApprovalAnswer::Denied => "denied",
        ApprovalAnswer::Expired => "expired without an answer",
        ApprovalAnswer::Unreachable => "nobody could be asked",
        ApprovalAnswer::Superseded => "changed meanwhile, to be asked again",
    }
}

/// A question and what can be shown about it.
struct Conversation<'a> {
    prompt: Prompt<'a>,
    question: Option<&'a dyn Posed>,
}

impl<'a> Conversation<'a> {
    fn of(question: &'a dyn Posed) -> Self {
        let explains = if question.judgement().is_some() { Explains::Yes } else { Explains::No };
        Self { prompt: Prompt::new(question.request(), question.left(), explains), question: Some(question) }
    }

    fn explained(&self, style: Style) -> String {
        let judgement = self.question.and_then(Posed::judgement);
        judgement.map(|judgement| explain::tree(Ok(judgement), style)).unwrap_or_default()
    }
}

type Said = (Say, Option<String>);

fn answer(device: &mut Device<'_>, conversation: &Conversation<'_>, style: Style) -> Result<Said, Silence> {
    let heard = converse(device, conversation, style).and_then(|say| {
        let wanted = conversation.prompt.wants_reason();
        let reason = if wanted { why(device)? } else { None };
        // Without the reason that it takes, a yes is none.
        let say = if wanted && reason.is_none() { Say::Deny } else { say };
        Ok((say, reason.or_else(|| wanted.then(|| "none given".to_owned()))))
    });
    let word = match &heard {
        Ok((say, _)) => said(say),
        Err(Silence::TimedOut) => "no answer: denied",
        Err(Silence::Interrupted) => "interrupted: denied",
        Err(Silence::Gone | Silence::Elsewhere) => return heard,
    };
    // An answer that cannot be shown is one all the same.
    let _gone = device.write(&format!("{word}\n"));
    heard
}

fn said(say: &Say) -> &'static str {
    match say {
        Say::Once | Say::Edited(_) => "allowed once",
        Say::Session(_) => "allowed for this session",
        Say::AlwaysHere { .. } => "always allowed here",
        Say::Deny => "denied",
    }
}

fn why(device: &mut Device<'_>) -> Result<Option<String>, Silence> {
    const LONGEST: usize = 300;
    device.write("why? > ")?;
    let typed = typed(device, LONGEST)?;
    Ok(typed.map(|reason| reason.trim().to_owned()).filter(|reason| !reason.is_empty()))
}

fn converse(device: &mut Device<'_>, conversation: &Conversation<'_>, style: Style) -> Result<Say, Silence> {
    let prompt = &conversation.prompt;
    let page = prompt.page(device.width(), style);
    let mark = begin(device, &page.text)?;
    device.settle()?;
    for _try in 0..TRIES {
        device.forget()?;
        device.write(&format!("{mark}: {}", page.choices))?;
        match next(device, prompt, &page)? {
            Step::Answer(say) => return Ok(say),
            Step::Explain => device.write(&format!("\n{}\n", conversation.explained(style)))?,
            Step::View => device.write(&format!("\n{}\n", prompt.whole(device.width(), style)))?,
            Step::Choose => {
                device.write(&format!("\n{}", prompt.grades(device.width(), style)))?;
                if let Some(say) = choose(device, prompt)? {
                    return Ok(say);
                }
            }
            Step::Again => device.write("\n")?,
        }
    }
    Ok(Say::Deny)
}

/// Shows a question on an empty screen, with a mark that stands on the line of the answer as well.
fn begin(device: &mut Device<'_>, text: &str) -> Result<Mark, Silence> {
    // Without it the operator could not tell this question from one that a command has drawn.
    let mark = Mark::fresh().map_err(|_no_randomness| Silence::Gone)?;
    device.clear()?;
    device.write(&format!("mark {mark}: the line of the answer has the same\n{text}\n"))?;
    Ok(mark)
}

/// Shows everything and takes one key, or the whole word where much is at stake.
fn confirm(
    device: &mut Device<'_>,
    prompt: &Prompt<'_>,
    (meant, style): (&str, Style),
) -> Result<bool, Silence> {
    let page = prompt.page(device.width(), style);
    let mark = begin(device, &page.text)?;
    if page.hidden > 0 {
        device.write(&prompt.whole(device.width(), style))?;
    }
    device.settle()?;
    let yes = match page.manner {
        Manner::Key => {
            device.write(&format!("{mark}: {meant}? [y]es, anything else is no > "))?;
            key(&device.burst()?) == Some(b'y')
        }
        Manner::Word => the_word(device, &format!("{mark}: {meant}"), style)?,
    };
    device.write("\n")?;
    Ok(yes)
}

fn permit(device: &mut Device<'_>, shown: &str, (meant, style): (&str, Style)) -> Result<bool, Silence> {
    let mark = begin(device, shown)?;
    device.settle()?;
    the_word(device, &format!("{mark}: {meant}"), style)
}

fn the_word(device: &mut Device<'_>, meant: &str, style: Style) -> Result<bool, Silence> {
    const LONGEST: usize = 40;
    device.write(&format!("{meant}? type {}, anything else is no > ", style.strong("yes")))?;
    Ok(typed(device, LONGEST)?.as_deref() == Some("yes"))
}

/// What follows from something typed.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Answer(Say),
    Explain,
    View,
    /// Which of several rules is stored.
    Choose,
    /// It meant nothing.
    Again,
}

fn next(device: &mut Device<'_>, prompt: &Prompt<'_>, page: &Page) -> Result<Step, Silence> {
    const LONGEST: usize = 40;
    match page.manner {
        Manner::Key => Ok(key_step(key(&device.burst()?), prompt)),
        Manner::Word => {
            Ok(typed(device, LONGEST)?.map_or(Step::Answer(Say::Deny), |word| word_step(&word, page, prompt)))
        }
    }
}

/// One key, with or without Enter after it. What sends more than that is a paste, a mouse or a key without a letter.
fn key(burst: &[u8]) -> Option<u8> {
    match burst {
        [key] | [key, b'\r' | b'\n'] => Some(*key),
        _ => None,
    }
}

/// Small letters only: capitals are the ends of what arrow keys send.
fn key_step(key: Option<u8>, prompt: &Prompt<'_>) -> Step {
    let offers = prompt.request.offers.len();
    match key {
        Some(b'\r' | b'\n' | CTRL_C | CTRL_D | b'd' | b'n') => Step::Answer(Say::Deny),
        Some(b'o') => Step::Answer(Say::Once),
        Some(b's') if prompt.offers_session() => Step::Answer(Say::Session(Terms::default())),
        Some(b'a') if offers == 1 => Step::Answer(Say::AlwaysHere { offer: 0, terms: Terms::default() }),
        Some(b'a') if offers > 1 => Step::Choose,
        Some(b'e') if prompt.explains == Explains::Yes => Step::Explain,
        _ => Step::Again,
    }
}

fn word_step(word: &str, page: &Page, prompt: &Prompt<'_>) -> Step {
    match word {
        "yes" => Step::Answer(Say::Once),
        "explain" | "e" if prompt.explains == Explains::Yes => Step::Explain,
        "view" | "v" if page.hidden > 0 => Step::View,
        _ => Step::Answer(Say::Deny),
    }
}

/// Which of the rules. Anything but a number goes back to the question.
fn choose(device: &mut Device<'_>, prompt: &Prompt<'_>) -> Result<Option<Say>, Silence> {
    let offers = prompt.request.offers.len();
    device.forget()?;
    device.write(&format!("which one? [1-{offers}], anything else goes back > "))?;
    let burst = device.burst()?;
    let number = key(&burst).and_then(|key| char::from(key).to_digit(10));
    let index = number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
    device.write("\n")?;
    match key(&burst) {
        Some(CTRL_C | CTRL_D) => Ok(Some(Say::Deny)),
        _ => Ok(index
            .filter(|index| *index < offers)
            .map(|offer| Say::AlwaysHere { offer, terms: Terms::default() })),
    }
}

/// A line as it is typed, shown as it grows. `None`: somebody wants out.
fn typed(device: &mut Device<'_>, longest: usize) -> Result<Option<String>, Silence> {
    let mut word = String::new();
    let mut spoiled = false;
    loop {
        for byte in device.burst()? {
            match byte {
                CTRL_C | CTRL_D | ESCAPE => return Ok(None),
                b'\r' | b'\n' => {
                    device.write("\n")?;
                    return Ok((!spoiled).then_some(word));
                }
                BACKSPACE | DELETE => {
                    if word.pop().is_some() {
                        device.write("\x08 \x08")?;
                    }
                }
                b' '..=b'~' if word.len() < longest => {
                    word.push(char::from(byte));
                    device.write(&char::from(byte).to_string())?;
                }
                // Too long, or no letter: whatever it is, it is not the word.
                _ => spoiled = true,
            }
        }
    }
}

#[cfg(test)]
mod tests;
