//! Pages a prompt that is longer than the screen; only the last page accepts a yes.
//!
//! INVARIANT: before the last line was shown only a denial is accepted. No line is wider than the screen,
//! because a line that the terminal wraps itself continues in the first column, where only Ringfence writes.

use unicode_width::UnicodeWidthStr as _;

use super::approval_screen::chopped;
use super::screen::Mark;
use super::tty::{NoAnswer, PromptTty};
use super::{CTRL_C, CTRL_D, TRIES, key};

/// Prefix of the continuation of a line wider than the screen.
const GOES_ON: &str = ": ";

/// Whether the operator has seen every line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PageOutcome {
    /// All lines were shown. The mark also stands on the answer line.
    All(Mark),
    /// Denied before the last line.
    Refused,
}

/// Shows a prompt on an empty screen, with a mark that also stands on the answer line.
pub(super) fn show(device: &mut PromptTty<'_>, text: &str) -> Result<PageOutcome, NoAnswer> {
    // Without it the operator could not distinguish this prompt from one that a command drew.
    let mark = Mark::fresh().map_err(|_no_randomness| NoAnswer::Gone)?;
    device.clear()?;
    let text = format!("mark {mark}: the line of the answer has the same\n{text}");
    let rows = rows(&text, device.width());
    let mut rest = rows.as_slice();
    loop {
        let (now, later) = rest.split_at(rest.len().min(screenful(device)));
        now.iter().try_for_each(|row| device.write(&format!("{row}\n")))?;
        if later.is_empty() {
            device.write("\n")?;
            return Ok(PageOutcome::All(mark));
        }
        if goes_on(device, &mark, later.len())? == Next::No {
            device.write("\n")?;
            return Ok(PageOutcome::Refused);
        }
        rest = later;
    }
}

/// Text in lines that fit, each with a prefix of Ringfence.
pub(super) fn fitted(text: &str, width: usize) -> String {
    rows(text, width).iter().map(|row| format!("{row}\n")).collect()
}

fn rows(text: &str, width: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for line in text.lines() {
        if line.width() <= width {
            rows.push(line.to_owned());
            continue;
        }
        let inside = width.saturating_sub(GOES_ON.len()).max(1);
        let pieces = chopped(line, inside);
        let marked = |(index, piece): (usize, &&str)| match index {
            0 => (*piece).to_owned(),
            _ => format!("{GOES_ON}{piece}"),
        };
        rows.extend(pieces.iter().enumerate().map(marked));
    }
    rows
}

/// Rows of text per page; the row below is for the prompt.
fn screenful(device: &PromptTty<'_>) -> usize {
    device.rows().saturating_sub(2).max(1)
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    More,
    No,
}

fn goes_on(device: &mut PromptTty<'_>, mark: &Mark, left: usize) -> Result<Next, NoAnswer> {
    device.settle()?;
    for _try in 0..TRIES {
        device.forget()?;
        device.write(&format!("{mark}: more below, {left} lines: space shows them, [d]eny --"))?;
        let pressed = key(&device.burst()?);
        device.write("\n")?;
        match pressed {
            Some(b' ') => return Ok(Next::More),
            Some(b'\r' | b'\n' | b'd' | b'n' | CTRL_C | CTRL_D) => return Ok(Next::No),
            _ => device.write("not yet: there is more below\n")?,
        }
    }
    Ok(Next::No)
}
