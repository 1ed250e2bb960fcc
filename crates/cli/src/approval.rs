//! Asking the person at the terminal.
//!
//! INVARIANT: whatever is not a clear yes after the question was shown is a no: Enter, Ctrl-C, the end of input, silence, a
//! terminal that goes away, keys that were typed before.

mod device;
mod prompt;

use std::time::Duration;

use ringfence_runtime::Approver;
use ringfence_runtime::authz::{Answer, Question};
use ringfence_types::Bytes;

use crate::environment::Environment;
use crate::explain::{self, Style};
use device::{Device, Silence};
use prompt::{Manner, Page, Prompt};

/// How long a question waits. Then the answer is no.
const PATIENCE: Duration = Duration::from_secs(600);
/// Answers that are none; then the answer is no.
const TRIES: u32 = 20;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const ESCAPE: u8 = 27;
const DELETE: u8 = 127;

/// The controlling terminal of this process. It is opened when something is asked, and never anything else instead:
/// the standard input belongs to the command.
#[derive(Debug)]
pub(crate) struct Terminal {
    variables: Vec<(Bytes, Bytes)>,
}

impl Terminal {
    pub(crate) fn new(environment: &Environment) -> Self {
        Self { variables: environment.all.clone() }
    }
}

impl Approver for Terminal {
    fn ask(&mut self, question: &Question) -> Answer {
        let Some(mut device) = Device::controlling(PATIENCE) else { return Answer::Unreachable };
        let style = Style::of(&self.variables, device.terminal());
        answer(&mut device, &Prompt::of(question, PATIENCE), style)
    }
}

fn answer(device: &mut Device, prompt: &Prompt<'_>, style: Style) -> Answer {
    let (answer, word) = match converse(device, prompt, style) {
        Ok(answer) => {
            let word = said(&answer);
            (answer, word)
        }
        Err(Silence::TimedOut) => (Answer::Deny, "no answer: denied"),
        Err(Silence::Interrupted) => (Answer::Deny, "interrupted: denied"),
        Err(Silence::Gone) => return Answer::Deny,
    };
    // An answer that cannot be shown is one all the same.
    let _gone = device.write(&format!("{word}\n"));
    answer
}

fn said(answer: &Answer) -> &'static str {
    match answer {
        Answer::Once => "allowed once",
        Answer::Session => "allowed for this session",
        Answer::AlwaysHere(_) => "always allowed here",
        Answer::Deny | Answer::Unreachable => "denied",
    }
}

fn converse(device: &mut Device, prompt: &Prompt<'_>, style: Style) -> Result<Answer, Silence> {
    let page = prompt.page(device.width(), style);
    device.write(&format!("\n{}\n", page.text))?;
    device.settle()?;
    for _try in 0..TRIES {
        device.forget()?;
        device.write(&page.choices)?;
        match next(device, prompt, &page)? {
            Step::Answer(answer) => return Ok(answer),
            Step::Explain => {
                let tree = explain::tree(Ok(prompt.judgement), style);
                device.write(&format!("\n{tree}\n"))?;
            }
            Step::View => device.write(&format!("\n{}\n", prompt.whole(device.width(), style)))?,
            Step::Choose => {
                device.write(&format!("\n{}", prompt.grades(device.width(), style)))?;
                if let Some(answer) = choose(device, prompt)? {
                    return Ok(answer);
                }
            }
            Step::Again => device.write("\n")?,
        }
    }
    Ok(Answer::Deny)
}

/// What follows from something typed.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Answer(Answer),
    Explain,
    View,
    /// Which of several rules is stored.
    Choose,
    /// It meant nothing.
    Again,
}

fn next(device: &mut Device, prompt: &Prompt<'_>, page: &Page) -> Result<Step, Silence> {
    match page.manner {
        Manner::Key => Ok(key_step(key(&device.burst()?), prompt)),
        Manner::Word => Ok(typed(device)?.map_or(Step::Answer(Answer::Deny), |word| word_step(&word, page))),
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
    match (key, prompt.offered()) {
        (Some(b'\r' | b'\n' | CTRL_C | CTRL_D | b'd' | b'n'), _) => Step::Answer(Answer::Deny),
        (Some(b'o'), _) => Step::Answer(Answer::Once),
        (Some(b's'), _) => Step::Answer(Answer::Session),
        (Some(b'a'), [only]) => Step::Answer(Answer::AlwaysHere(only.clone())),
        (Some(b'a'), [_, _, ..]) => Step::Choose,
        (Some(b'e'), _) => Step::Explain,
        _ => Step::Again,
    }
}

fn word_step(word: &str, page: &Page) -> Step {
    match word {
        "yes" => Step::Answer(Answer::Once),
        "explain" | "e" => Step::Explain,
        "view" | "v" if page.hidden > 0 => Step::View,
        _ => Step::Answer(Answer::Deny),
    }
}

/// Which of the rules. Anything but a number goes back to the question.
fn choose(device: &mut Device, prompt: &Prompt<'_>) -> Result<Option<Answer>, Silence> {
    device.forget()?;
    device.write(&format!("which one? [1-{}], anything else goes back > ", prompt.offered().len()))?;
    let burst = device.burst()?;
    let number = key(&burst).and_then(|key| char::from(key).to_digit(10));
    let index = number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
    let chosen = index.and_then(|index| prompt.offered().get(index)).cloned();
    device.write("\n")?;
    match key(&burst) {
        Some(CTRL_C | CTRL_D) => Ok(Some(Answer::Deny)),
        _ => Ok(chosen.map(Answer::AlwaysHere)),
    }
}

/// A line as it is typed, shown as it grows. `None`: somebody wants out.
fn typed(device: &mut Device) -> Result<Option<String>, Silence> {
    const LONGEST: usize = 40;
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
                b' '..=b'~' if word.len() < LONGEST => {
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
