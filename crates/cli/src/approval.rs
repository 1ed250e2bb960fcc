//! Approval prompts at the controlling terminal.
//!
//! INVARIANT: only a clear yes after the prompt was shown is a yes. Enter, Ctrl-C, end of input, silence, a
//! closed terminal and keys typed earlier are a denial.

mod approval_screen;
mod operator;
mod pages;
mod screen;
mod tty;

use std::io::Write as _;
use std::time::Duration;

use ringfence_authz::Judgement;
use ringfence_ledger::{ApprovalAnswer, ApprovalDecision, ApprovalRequest};
use ringfence_runtime::approvals::{ApprovalWait, GrantTerms, OperatorDecision, OperatorReply};
use ringfence_runtime::{Approver, ApproverReply};
use ringfence_types::{ByteString, Principal};

use crate::environment::Environment;
use crate::explain::{self, TextColor, TextStyle};
use approval_screen::{ConfirmationMode, ScreenPage};
use pages::{PageOutcome, fitted, show};
use screen::Screen;
use tty::{NoAnswer, PromptTty};

pub(crate) use approval_screen::{ApprovalScreen, ExplainSupport, span};
pub(crate) use operator::{OperatorRequirement, authenticate, here, record, require};

/// Timeout for the word that a command of the operator asks for.
const PATIENCE: Duration = Duration::from_secs(600);

/// Number of invalid inputs after which the answer is a denial.
const TRIES: u32 = 20;

/// Number of repeated prompts after resizes; then the answer is a denial.
const SHOWINGS: u32 = 20;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const ESCAPE: u8 = 27;
const DELETE: u8 = 127;

/// An approval that a terminal can show, from any backend.
pub(crate) trait PromptSource {
    fn request(&self) -> &ApprovalRequest;
    /// Remaining time.
    fn left(&self) -> Duration;
    /// The decision made elsewhere meanwhile.
    fn decided(&self) -> Option<ApprovalDecision>;

    /// Every part with its decision, if this process evaluated the call.
    fn judgement(&self) -> Option<&Judgement> {
        None
    }
}

impl PromptSource for ApprovalWait<'_> {
    fn request(&self) -> &ApprovalRequest {
        ApprovalWait::request(self)
    }

    fn left(&self) -> Duration {
        ApprovalWait::left(self)
    }

    fn decided(&self) -> Option<ApprovalDecision> {
        ApprovalWait::decided(self)
    }

    fn judgement(&self) -> Option<&Judgement> {
        ApprovalWait::judgement(self)
    }
}

/// The controlling terminal of this process, opened when a prompt is needed. Never standard input, which
/// belongs to the command.
#[derive(Clone, Debug)]
pub(crate) struct ControllingTerminal {
    variables: Vec<(ByteString, ByteString)>,
    /// `None`: this process runs in a session, whose terminal the agent controls.
    operator: Option<Principal>,
}

impl ControllingTerminal {
    pub(crate) fn new(environment: &Environment) -> Self {
        Self {
            variables: environment.all.clone(),
            operator: authenticate(environment, OperatorRequirement::Nothing).ok(),
        }
    }

    fn screen(&self) -> Screen {
        let name = self.variables.iter().find(|(name, _)| name.as_slice() == b"TERM");
        Screen::of(name.map(|(_, value)| value.as_slice()))
    }

    /// Shows the prompt and returns the reply.
    pub(crate) fn asked(&self, question: &dyn PromptSource) -> ApproverReply {
        let Some(operator) = &self.operator else { return ApproverReply::Interrupted };
        let elsewhere = || question.decided().is_some();
        let Some(device) = PromptTty::controlling(question.left(), &elsewhere) else {
            return ApproverReply::Interrupted;
        };
        let mut device = device.on_screen(self.screen());
        let style = TextStyle::of(&self.variables, device.terminal());
        let heard = answer(&mut device, &ApprovalDialog::of(question), style);
        match heard {
            Ok((say, reason)) => ApproverReply::Reply(OperatorReply { by: operator.clone(), say, reason }),
            Err(NoAnswer::TimedOut) => ApproverReply::Silence,
            Err(NoAnswer::Interrupted | NoAnswer::Gone) => ApproverReply::Interrupted,
            Err(NoAnswer::Elsewhere) => {
                let text = question.decided().map(|decision| told(&decision)).unwrap_or_default();
                let _gone = device.write(&format!("\n{text}\n"));
                ApproverReply::Elsewhere
            }
        }
    }

    /// Shows an approval that was answered by an argument, and asks for confirmation.
    pub(crate) fn confirmed(&self, question: &dyn PromptSource, meant: &str) -> Option<bool> {
        self.operator.as_ref()?;
        let elsewhere = || question.decided().is_some();
        let mut device = PromptTty::controlling(question.left(), &elsewhere)?.on_screen(self.screen());
        let style = TextStyle::of(&self.variables, device.terminal());
        Some(confirm(&mut device, &ApprovalDialog::of(question).prompt, meant, style).unwrap_or(false))
    }

    /// Shows what a yes would permit and requires the typed word, for decisions outside a session.
    pub(crate) fn permitted(&self, shown: &str, meant: &str) -> bool {
        let Some(_operator) = &self.operator else { return false };
        let Some(device) = PromptTty::controlling(PATIENCE, &|| false) else { return false };
        let mut device = device.on_screen(self.screen());
        let style = TextStyle::of(&self.variables, device.terminal());
        permit(&mut device, shown, meant, style).unwrap_or(false)
    }
}

impl Approver for ControllingTerminal {
    fn is_there(&mut self) -> bool {
        self.operator.is_some() && tty::foreground().is_some()
    }

    fn ask(&mut self, question: &ApprovalWait<'_>) -> ApproverReply {
        self.asked(question)
    }

    fn tell(&mut self, text: &str) {
        let Some(mut terminal) = tty::foreground() else { return };
        // The answer counts even if it cannot be shown. A terminal in raw mode needs the carriage return.
        let _gone = write!(terminal, "{text}\r\n");
    }
}

/// A decision made elsewhere, in one line.
pub(crate) fn told(decision: &ApprovalDecision) -> String {
    let reason =
        decision.reason.as_deref().map(|reason| format!(" ({})", ByteString::from(reason).display()));
    format!(
        "answered elsewhere: {} by {}{}",
        word(decision.answer),
        decision.actor,
        reason.unwrap_or_default()
    )
}

pub(crate) fn word(answer: ApprovalAnswer) -> &'static str {
    match answer {
        ApprovalAnswer::Once => "allowed once",
        ApprovalAnswer::Session => "allowed for this session",
        ApprovalAnswer::AlwaysHere => "always allowed here",
        ApprovalAnswer::Deny => "denied",
        ApprovalAnswer::Expired => "expired without an answer",
        ApprovalAnswer::Unreachable => "no approver was available",
        ApprovalAnswer::Superseded => "superseded: the action changed",
    }
}

/// A prompt and the details it can show.
struct ApprovalDialog<'a> {
    prompt: ApprovalScreen<'a>,
    question: Option<&'a dyn PromptSource>,
}

impl<'a> ApprovalDialog<'a> {
    fn of(question: &'a dyn PromptSource) -> Self {
        let explains = if question.judgement().is_some() { ExplainSupport::Yes } else { ExplainSupport::No };
        Self {
            prompt: ApprovalScreen::new(question.request(), question.left(), explains),
            question: Some(question),
        }
    }

    fn explained(&self, width: usize, style: TextStyle) -> String {
        let judgement = self.question.and_then(PromptSource::judgement);
        // Lines are cut at the screen width, which could split a colour sequence.
        let plain = TextStyle { ink: TextColor::Plain, ..style };
        let tree = judgement.map(|judgement| explain::tree(Ok(judgement), plain)).unwrap_or_default();
        fitted(&tree, width)
    }
}

type DialogAnswer = (OperatorDecision, Option<String>);

fn answer(
    device: &mut PromptTty<'_>,
    conversation: &ApprovalDialog<'_>,
    style: TextStyle,
) -> Result<DialogAnswer, NoAnswer> {
    let heard = converse(device, conversation, style).and_then(|say| {
        let wanted = conversation.prompt.wants_reason();
        let reason = if wanted { why(device)? } else { None };
        // A yes without a required reason is a denial.
        let say = if wanted && reason.is_none() { OperatorDecision::Deny } else { say };
        Ok((say, reason.or_else(|| wanted.then(|| "none given".to_owned()))))
    });
    let word = match &heard {
        Ok((say, _)) => said(say),
        Err(NoAnswer::TimedOut) => "no answer: denied",
        Err(NoAnswer::Interrupted) => "interrupted: denied",
        Err(NoAnswer::Gone | NoAnswer::Elsewhere) => return heard,
    };
    // The answer counts even if it cannot be shown.
    let _gone = device.write(&format!("{word}\n"));
    heard
}

fn said(say: &OperatorDecision) -> &'static str {
    match say {
        OperatorDecision::Once | OperatorDecision::Edited(_) => "allowed once",
        OperatorDecision::Session(_) => "allowed for this session",
        OperatorDecision::AlwaysHere { .. } => "always allowed here",
        OperatorDecision::Deny => "denied",
    }
}

fn why(device: &mut PromptTty<'_>) -> Result<Option<String>, NoAnswer> {
    const LONGEST: usize = 300;
    device.write("why? > ")?;
    let typed = typed(device, LONGEST)?;
    Ok(typed.map(|reason| reason.trim().to_owned()).filter(|reason| !reason.is_empty()))
}

fn converse(
    device: &mut PromptTty<'_>,
    conversation: &ApprovalDialog<'_>,
    style: TextStyle,
) -> Result<OperatorDecision, NoAnswer> {
    for _showing in 0..SHOWINGS {
        if let Some(say) = pose(device, conversation, style)? {
            return Ok(say);
        }
    }
    Ok(OperatorDecision::Deny)
}

/// Shows the prompt and reads an answer. `None`: the screen was resized, which may have rewrapped lines, so
/// the input does not count.
fn pose(
    device: &mut PromptTty<'_>,
    conversation: &ApprovalDialog<'_>,
    style: TextStyle,
) -> Result<Option<OperatorDecision>, NoAnswer> {
    let prompt = &conversation.prompt;
    let size = device.size();
    let page = prompt.page(device.width(), style);
    let PageOutcome::All(mark) = show(device, &page.text)? else { return Ok(Some(OperatorDecision::Deny)) };
    device.settle()?;
    for _try in 0..TRIES {
        device.forget()?;
        device.write(&format!("{mark}: {}", page.choices))?;
        let step = next(device, prompt, &page)?;
        if step != DialogStep::Answer(OperatorDecision::Deny) && device.size() != size {
            return Ok(None);
        }
        match step {
            DialogStep::Answer(say) => return Ok(Some(say)),
            DialogStep::Explain => {
                let explained = conversation.explained(device.width(), style);
                device.write(&format!("\n{explained}\n"))?;
            }
            DialogStep::Choose => {
                device.write(&format!("\n{}", prompt.grades(device.width(), style)))?;
                if let Some(say) = choose(device, prompt)? {
                    return Ok((say == OperatorDecision::Deny || device.size() == size).then_some(say));
                }
            }
            DialogStep::Again => device.write("\n")?,
        }
    }
    Ok(Some(OperatorDecision::Deny))
}

/// Shows everything and reads one key, or the typed word for a high risk.
fn confirm(
    device: &mut PromptTty<'_>,
    prompt: &ApprovalScreen<'_>,
    meant: &str,
    style: TextStyle,
) -> Result<bool, NoAnswer> {
    let size = device.size();
    let page = prompt.page(device.width(), style);
    let PageOutcome::All(mark) = show(device, &page.text)? else { return Ok(false) };
    device.settle()?;
    let yes = match page.manner {
        ConfirmationMode::Key => {
            device.write(&format!("{mark}: {meant}? [y]es, anything else denies > "))?;
            key(&device.burst()?) == Some(b'y')
        }
        ConfirmationMode::Word => the_word(device, &format!("{mark}: {meant}"), style)?,
    };
    device.write("\n")?;
    // A yes after a resize does not count, because lines may have been rewrapped.
    Ok(yes && device.size() == size)
}

fn permit(device: &mut PromptTty<'_>, shown: &str, meant: &str, style: TextStyle) -> Result<bool, NoAnswer> {
    let size = device.size();
    let PageOutcome::All(mark) = show(device, shown)? else { return Ok(false) };
    device.settle()?;
    let yes = the_word(device, &format!("{mark}: {meant}"), style)?;
    Ok(yes && device.size() == size)
}

fn the_word(device: &mut PromptTty<'_>, meant: &str, style: TextStyle) -> Result<bool, NoAnswer> {
    const LONGEST: usize = 40;
    device.write(&format!("{meant}? type {}, anything else denies > ", style.strong("yes")))?;
    Ok(typed(device, LONGEST)?.as_deref() == Some("yes"))
}

/// The effect of an input.
#[derive(Debug, PartialEq, Eq)]
enum DialogStep {
    Answer(OperatorDecision),
    Explain,
    /// Choose which of several rules to store.
    Choose,
    /// Invalid input.
    Again,
}

fn next(
    device: &mut PromptTty<'_>,
    prompt: &ApprovalScreen<'_>,
    page: &ScreenPage,
) -> Result<DialogStep, NoAnswer> {
    const LONGEST: usize = 40;
    match page.manner {
        ConfirmationMode::Key => Ok(key_step(key(&device.burst()?), prompt)),
        ConfirmationMode::Word => Ok(typed(device, LONGEST)?
            .map_or(DialogStep::Answer(OperatorDecision::Deny), |word| word_step(&word, prompt))),
    }
}

/// One key, optionally followed by Enter. A longer input is a paste, a mouse event or a special key.
fn key(burst: &[u8]) -> Option<u8> {
    match burst {
        [key] | [key, b'\r' | b'\n'] => Some(*key),
        _ => None,
    }
}

/// Lower case only: sequences of arrow keys end in capitals.
fn key_step(key: Option<u8>, prompt: &ApprovalScreen<'_>) -> DialogStep {
    let offers = prompt.request.grant_offers.len();
    match key {
        Some(b'\r' | b'\n' | CTRL_C | CTRL_D | b'd' | b'n') => DialogStep::Answer(OperatorDecision::Deny),
        Some(b'o') => DialogStep::Answer(OperatorDecision::Once),
        Some(b's') if prompt.offers_session() => {
            DialogStep::Answer(OperatorDecision::Session(GrantTerms::default()))
        }
        Some(b'a') if offers == 1 => {
            DialogStep::Answer(OperatorDecision::AlwaysHere { offer: 0, terms: GrantTerms::default() })
        }
        Some(b'a') if offers > 1 => DialogStep::Choose,
        Some(b'e') if prompt.explains == ExplainSupport::Yes => DialogStep::Explain,
        _ => DialogStep::Again,
    }
}

fn word_step(word: &str, prompt: &ApprovalScreen<'_>) -> DialogStep {
    match word {
        "yes" => DialogStep::Answer(OperatorDecision::Once),
        "explain" | "e" if prompt.explains == ExplainSupport::Yes => DialogStep::Explain,
        _ => DialogStep::Answer(OperatorDecision::Deny),
    }
}

/// Reads the number of a rule. Any other input returns to the prompt.
fn choose(
    device: &mut PromptTty<'_>,
    prompt: &ApprovalScreen<'_>,
) -> Result<Option<OperatorDecision>, NoAnswer> {
    let offers = prompt.request.grant_offers.len();
    device.forget()?;
    device.write(&format!("which one? [1-{offers}], anything else goes back > "))?;
    let burst = device.burst()?;
    let number = key(&burst).and_then(|key| char::from(key).to_digit(10));
    let index = number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
    device.write("\n")?;
    match key(&burst) {
        Some(CTRL_C | CTRL_D) => Ok(Some(OperatorDecision::Deny)),
        _ => Ok(index
            .filter(|index| *index < offers)
            .map(|offer| OperatorDecision::AlwaysHere { offer, terms: GrantTerms::default() })),
    }
}

/// Reads a line with echo. `None`: the person cancelled.
fn typed(device: &mut PromptTty<'_>, longest: usize) -> Result<Option<String>, NoAnswer> {
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
                // Too long or no letter: it cannot be the word.
                _ => spoiled = true,
            }
        }
    }
}

#[cfg(test)]
mod tests;
