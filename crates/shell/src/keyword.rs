//! Words that are grammar, in one shell or another.

use super::reader::{ShellReader, ends_word};

/// A reserved word that this grammar reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Bang,
    Time,
    OpenBrace,
    CloseBrace,
    If,
    Then,
    Elif,
    Else,
    Fi,
    For,
    Select,
    While,
    Until,
    Do,
    Done,
    Case,
    In,
    Esac,
    Function,
    Coproc,
}

const KEYWORDS: &[(&[u8], Keyword)] = &[
    (b"!", Keyword::Bang),
    (b"time", Keyword::Time),
    (b"{", Keyword::OpenBrace),
    (b"}", Keyword::CloseBrace),
    (b"if", Keyword::If),
    (b"then", Keyword::Then),
    (b"elif", Keyword::Elif),
    (b"else", Keyword::Else),
    (b"fi", Keyword::Fi),
    (b"for", Keyword::For),
    (b"select", Keyword::Select),
    (b"while", Keyword::While),
    (b"until", Keyword::Until),
    (b"do", Keyword::Do),
    (b"done", Keyword::Done),
    (b"case", Keyword::Case),
    (b"in", Keyword::In),
    (b"esac", Keyword::Esac),
    (b"function", Keyword::Function),
    (b"coproc", Keyword::Coproc),
];

const LONGEST: usize = 8;

/// Reserved in at least one shell, and grammar there even after an assignment or a redirection.
pub(super) fn is_reserved(word: &[u8]) -> bool {
    lookup(word).is_some() || matches!(word, b"[[" | b"]]" | b"end" | b"foreach" | b"nocorrect" | b"repeat")
}

fn lookup(word: &[u8]) -> Option<Keyword> {
    KEYWORDS.iter().find(|(name, _)| *name == word).map(|(_, keyword)| *keyword)
}

impl Keyword {
    /// It ends a list of commands.
    fn closes(self) -> bool {
        use Keyword::{CloseBrace, Do, Done, Elif, Else, Esac, Fi, Then};
        matches!(self, CloseBrace | Then | Elif | Else | Fi | Do | Done | Esac)
    }

    pub(super) fn length(self) -> usize {
        KEYWORDS.iter().find(|(_, keyword)| *keyword == self).map_or(0, |(name, _)| name.len())
    }
}

impl ShellReader<'_, '_> {
    /// The reserved word that stands here.
    pub(super) fn keyword(&self) -> Option<Keyword> {
        let length = (0..=LONGEST).find(|ahead| ends_word(self.peek_at(*ahead)))?;
        lookup(self.slice(self.at, self.at.saturating_add(length)))
    }

    /// Whether a list of commands ends here.
    pub(super) fn closes(&self) -> bool {
        match self.peek() {
            None | Some(b')') => true,
            Some(b';') => matches!(self.peek_at(1), Some(b';' | b'&' | b'|')),
            Some(_) => self.keyword().is_some_and(Keyword::closes),
        }
    }
}
