//! One pattern of a rule about files: what it means, and what is wrong with it.

use std::path::{Component, Path};

use ringfence_types::ByteString;

/// What a pattern names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathPattern {
    /// A file or directory of this name at any depth, and everything in it.
    Name(String),
    /// Everything in a directory of this name at any depth.
    InName(String),
    /// One path from the root, and everything in it.
    Path(String),
    /// Everything in a directory.
    Tree(String),
    /// Whatever one of these globs matches.
    Globs(Vec<String>),
}

const WILD: &[char] = &['*', '?', '[', ']', '{', '}', '\\'];

/// What is wrong with a rule about files, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathPatternError {
    #[error("a rule without a pattern speaks about nothing; name a path, or remove the rule")]
    NoPattern,
    #[error("an empty pattern names nothing; `**` is everything in a root")]
    Empty,
    #[error("`{0}` names nothing; `**` is everything in a root")]
    Nothing(String),
    #[error("`{0}` contains a NUL byte, which no path has; remove it")]
    Nul(String),
    #[error("`{shown}`: an exception is an `except` of the rule that it limits; name `{rest}` there")]
    Exception { shown: String, rest: String },
    #[error("`{shown}` is absolute, but patterns begin at a root; write `./{rest}`")]
    Absolute { shown: String, rest: String },
    #[error("`{0}` leads upwards; name the path from the root, without `..`")]
    Upwards(String),
    #[error("`{0}`: `**` stands alone between slashes; inside a name use `*`")]
    Stars(String),
    #[error("`{shown}` is not a pattern: {why}; put a backslash before a character that stands for itself")]
    Glob { shown: String, why: globset::ErrorKind },
    #[error("`{shown}` cannot be opened for writing by any rule: {reason}; remove the pattern")]
    Protected { shown: String, reason: &'static str },
}

/// Reads a pattern, or says what to write instead.
pub(super) fn parse(text: &str) -> Result<PathPattern, PathPatternError> {
    check(text)?;
    let parts = parts(text);
    let Some((last, above)) = parts.split_last() else {
        return Err(PathPatternError::Nothing(shown(text)));
    };
    let path = || parts.join("/");
    let wild_above = above.iter().any(is_wild);
    Ok(match *last {
        "**" if let ["**", name] = above
            && !is_wild(name) =>
        {
            PathPattern::InName((*name).to_owned())
        }
        "**" if wild_above => PathPattern::Globs(vec![path()]),
        "**" => PathPattern::Tree(above.join("/")),
        name if text.ends_with('/') && above == ["**"] && !is_wild(last) => {
            PathPattern::InName(name.to_owned())
        }
        _ if text.ends_with('/') && (wild_above || is_wild(last)) => PathPattern::Globs(vec![path() + "/**"]),
        _ if text.ends_with('/') => PathPattern::Tree(path()),
        _ if !text.contains('/') && is_wild(last) => PathPattern::Globs(vec![format!("**/{last}")]),
        _ if !text.contains('/') => PathPattern::Name(path()),
        name if above == ["**"] && !is_wild(last) => PathPattern::Name(name.to_owned()),
        _ if is_wild(last) => PathPattern::Globs(vec![path()]),
        _ if wild_above => PathPattern::Globs(vec![path(), path() + "/**"]),
        _ => PathPattern::Path(path()),
    })
}

/// What is between the slashes. `**/*` and a lone `*` say the same as `**`, and so do two of them in a row.
fn parts(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.ends_with(&["**", "*"]) && !text.ends_with('/') {
        parts.pop();
    }
    parts.dedup_by(|one, other| *one == "**" && *other == "**");
    if text == "*" { vec!["**"] } else { parts }
}

impl PathPattern {
    /// Whether it could match something inside `directory`. It may say yes too often, never no.
    pub(super) fn may_match_in(&self, directory: &Path) -> bool {
        match self {
            Self::Name(_) | Self::InName(_) => true,
            Self::Path(path) | Self::Tree(path) => agree(path.split('/'), directory),
            Self::Globs(globs) => {
                globs.iter().any(|glob| agree(glob.split('/').take_while(|part| !is_wild(part)), directory))
            }
        }
    }
}

/// Whether one of two paths leads into the other.
fn agree<'a>(parts: impl Iterator<Item = &'a str>, directory: &Path) -> bool {
    let names = directory.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        _ => None,
    });
    parts.filter(|part| !part.is_empty()).zip(names).all(|(part, name)| part.to_lowercase() == name)
}

fn is_wild(part: &&str) -> bool {
    part.contains(WILD)
}

fn shown(text: &str) -> String {
    ByteString::from(text).display()
}

fn check(text: &str) -> Result<(), PathPatternError> {
    if text.is_empty() {
        return Err(PathPatternError::Empty);
    }
    if text.contains('\0') {
        return Err(PathPatternError::Nul(shown(text)));
    }
    if let Some(rest) = text.strip_prefix('!') {
        return Err(PathPatternError::Exception { shown: shown(text), rest: rest.to_owned() });
    }
    if text.starts_with('/') || text.starts_with('~') {
        let rest = text.trim_start_matches(['/', '~']).to_owned();
        return Err(PathPatternError::Absolute { shown: shown(text), rest });
    }
    if text.split('/').any(|part| part == "..") {
        return Err(PathPatternError::Upwards(shown(text)));
    }
    if text.split('/').any(|part| part != "**" && part.contains("**")) {
        return Err(PathPatternError::Stars(shown(text)));
    }
    Ok(())
}
