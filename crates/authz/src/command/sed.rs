//! Programs of `sed`: most only print, some write files or run commands (B-C26).

use ringfence_types::{Risk, RuleFamily};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use super::options::{OptionEffect, ParsedArgs};

/// The opinion about every program that a command line gives to `sed`.
pub(super) fn judge(reading: &ParsedArgs<'_>) -> Option<BuiltinVerdict> {
    let given = reading.has(|effect| matches!(effect, OptionEffect::Sed | OptionEffect::Execute));
    let first = reading.operands.first().filter(|_| !given).map(|operand| operand.arg);
    let options =
        reading.hits.iter().filter(|hit| hit.effect == OptionEffect::Sed).filter_map(|hit| hit.value);
    let harmless = |arg: Arg<'_>| arg.text().is_some_and(only_prints);
    options.chain(first).find(|arg| !harmless(*arg)).map(|_| {
        let reason = "its program writes, reads or runs something, or is beyond what is understood";
        BuiltinVerdict::miss(RuleFamily::Option.member("sed"), reason, Risk::High).exact()
    })
}

/// Whether a program certainly does nothing but print. Understood are addresses and the commands without a file name.
fn only_prints(program: &[u8]) -> bool {
    let mut text = SedCursor(program);
    loop {
        text.skip(b" \t\n;{}");
        if text.0.is_empty() {
            return true;
        }
        if text.address().is_none() || text.command().is_none() {
            return false;
        }
    }
}

struct SedCursor<'a>(&'a [u8]);

impl SedCursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn skip(&mut self, bytes: &[u8]) {
        while self.peek().is_some_and(|byte| bytes.contains(&byte)) {
            self.next();
        }
    }

    /// `1,20`, `/from/,/to/`, `$`, `3~2`, `5,+3`, with `!`; none at all is fine.
    fn address(&mut self) -> Option<()> {
        loop {
            match self.peek()? {
                b'0'..=b'9' | b'$' | b',' | b'~' | b'+' | b'!' | b' ' | b'I' => {
                    self.next();
                }
                b'/' => {
                    self.next();
                    self.until(b'/')?;
                }
                b'{' | b'}' | b';' | b'\n' => {
                    self.next();
                }
                _ => return Some(()),
            }
        }
    }

    /// Past the next `end` that is not escaped. Brackets may hold one: with a bracket the answer is "not understood".
    fn until(&mut self, end: u8) -> Option<()> {
        loop {
            match self.next()? {
                b'\\' => {
                    self.next()?;
                }
                b'[' | b'\n' => return None,
                byte if byte == end => return Some(()),
                _ => {}
            }
        }
    }

    fn command(&mut self) -> Option<()> {
        match self.next()? {
            b'p' | b'P' | b'd' | b'D' | b'n' | b'N' | b'g' | b'G' | b'h' | b'H' | b'x' | b'=' | b'l' => {
                self.end()
            }
            b'q' | b'Q' => {
                self.skip(b" 0123456789");
                self.end()
            }
            b's' => {
                let delimiter = self.delimiter()?;
                self.until(delimiter)?;
                self.until(delimiter)?;
                // Not `e` and not `w`: they run and write.
                self.skip(b"gpiI0123456789");
                self.end()
            }
            b'y' => {
                let delimiter = self.delimiter()?;
                self.until(delimiter)?;
                self.until(delimiter)?;
                self.end()
            }
            _ => None,
        }
    }

    fn delimiter(&mut self) -> Option<u8> {
        self.next().filter(|byte| byte.is_ascii_punctuation() && !matches!(byte, b'\\' | b';'))
    }

    fn end(&mut self) -> Option<()> {
        self.skip(b" \t");
        match self.peek() {
            None | Some(b';' | b'\n' | b'}') => Some(()),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::only_prints;

    #[test]
    fn b_c26_programs_that_only_print_are_known() {
        for program in [
            "p", "1,20p", "$d", "/a/,/b/p", "s/a/b/g", "s|a|b|;p", "/x/!d", "10q", "y/ab/cd/", "{p;d}", "n;d",
        ] {
            assert!(only_prints(program.as_bytes()), "{program}");
        }
    }

    #[test]
    fn b_c26_programs_that_write_or_run_are_not() {
        for program in [
            "1e id",
            "e",
            "s/a/b/e",
            "s/a/b/w out",
            "s/a/b/ge",
            "w out",
            "r /etc/passwd",
            "R x",
            "W x",
            "s/[/]/w f/w out",
            "$!{w x\n}",
            "p;w x",
            "a text",
            "1~2e",
            "s;a;b;w x",
            "b end; : end",
        ] {
            assert!(!only_prints(program.as_bytes()), "{program}");
        }
    }
}
