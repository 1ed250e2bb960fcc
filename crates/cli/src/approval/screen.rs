//! Prepares the screen for an approval prompt: a known state, without output of other programs.
//!
//! A command may have set a scroll region, margins, a character set or the alternate screen, and may have
//! drawn a fake prompt. Ringfence resets all of these and scrolls the old content away before it asks. An
//! unpredictable mark stands at the beginning of the prompt and on the answer line: only the text between the
//! two is the prompt.

use std::fmt;

/// Modes that the terminal saves before the prompt and restores after it, if it can.
const REMEMBERED: &str = "1;1000;1002;1003;1004;1006;1049;2004";

/// Resets everything else a program may have changed. A terminal ignores unknown sequences.
const KNOWN: &[&str] = &[
    // Ends an unfinished sequence: cancel, and string terminator.
    "\x18\x1b\\",
    // Synchronised output, the alternate screens, the status line.
    "\x1b[?2026l\x1b[?1049l\x1b[?1047l\x1b[?47l\x1b[0$}",
    // Soft reset, then its parts one by one, because not every terminal does all of them.
    "\x1b[!p\x1b[?69l\x1b[?6l\x1b[r\x1b[4l\x1b[20l\x1b[?7h\x1b[?5l\x1b[?25h\x1b[?45l\x1b[?66l\x1b>",
    // UTF-8, and ASCII in all four sets.
    "\x1b%G\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b~",
    // Colours and attributes, the palette, links.
    "\x1b[0m\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\\x1b]8;;\x1b\\",
    // Keys arrive as plain bytes: no mouse, no paste brackets, no focus, no extended keys.
    "\x1b[?1l\x1b[?9l\x1b[?1000l\x1b[?1001l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l",
    "\x1b[?1015l\x1b[?1016l\x1b[?2004l\x1b[>4;0m\x1b[=0;1u",
];

/// Limit of rows scrolled away.
const MOST_ROWS: u16 = 500;

/// The kind of screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    Ansi,
    /// It understands no sequences, so a command cannot change it with them either.
    Dumb,
}

impl Screen {
    pub(super) fn of(terminal_name: Option<&[u8]>) -> Self {
        match terminal_name {
            None | Some(b"" | b"dumb" | b"unknown") => Self::Dumb,
            Some(_) => Self::Ansi,
        }
    }

    /// Written before a prompt: afterwards the cursor is at the top of an empty screen.
    pub(super) fn cleared(self, rows: u16) -> String {
        let rows = if rows == 0 { 24 } else { rows.min(MOST_ROWS) };
        let away = "\n".repeat(usize::from(rows));
        match self {
            Self::Dumb => away,
            Self::Ansi => format!(
                "\x1b[22;0t\x1b[?{REMEMBERED}s{}\x1b]0;ringfence approval\x1b\\\x1b[{rows};1H{away}\x1b[H\x1b[J",
                KNOWN.concat()
            ),
        }
    }

    /// Written after the prompt.
    pub(super) fn given_back(self) -> String {
        match self {
            Self::Dumb => String::new(),
            Self::Ansi => format!("\x1b[?{REMEMBERED}r\x1b[23;0t"),
        }
    }
}

/// Two words and a number, unpredictable before the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn fresh() -> Result<Self, getrandom::Error> {
        let mut random = [0_u8; 3];
        getrandom::fill(&mut random)?;
        let [one, other, number] = random;
        let word = |byte: u8| WORDS.get(usize::from(byte) % WORDS.len()).copied().unwrap_or_default();
        Ok(Self(format!("{}-{}-{number}", word(one), word(other))))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const WORDS: [&str; 64] = [
    "amber", "anchor", "apple", "arrow", "badger", "basil", "beacon", "birch", "bison", "candle", "canyon",
    "cedar", "cherry", "cobalt", "comet", "copper", "coral", "cotton", "crane", "daisy", "delta", "ember",
    "falcon", "fern", "flint", "garnet", "ginger", "glacier", "harbor", "hazel", "heron", "indigo", "ivory",
    "jasper", "juniper", "kettle", "lantern", "lemon", "linen", "lotus", "maple", "marble", "meadow",
    "mango", "nickel", "nutmeg", "olive", "onyx", "orchid", "otter", "pebble", "pepper", "quartz", "raven",
    "river", "saffron", "silver", "tulip", "umber", "velvet", "walrus", "willow", "yarrow", "zinc",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_command_can_set_is_taken_back_before_the_screen_is_cleared() {
        let text = Screen::Ansi.cleared(3);
        let ends = text.find("\n\n\n\x1b[H\x1b[J").unwrap();
        for sequence in [
            "\x1b[r",
            "\x1b[?69l",
            "\x1b[?6l",
            "\x1b(B",
            "\x1b)B",
            "\x0f",
            "\x1b[?1049l",
            "\x1b[?47l",
            "\x1b[0m",
            "\x1b[?25h",
            "\x1b[?2004l",
            "\x1b[?1003l",
            "\x1b[?2026l",
            "\x1b]104",
            "\x18",
            "\x1b[!p",
        ] {
            assert!(text.find(sequence).is_some_and(|at| at < ends), "{sequence:?}");
        }
        assert_eq!(Screen::of(Some(b"dumb")).cleared(2), "\n\n");
        assert_eq!(Screen::of(Some(b"xterm")), Screen::Ansi);
    }

    #[test]
    fn marks_differ() {
        let marks: std::collections::HashSet<String> =
            (0..50).map(|_| Mark::fresh().unwrap().to_string()).collect();
        assert!(marks.len() > 40, "{marks:?}");
    }
}
