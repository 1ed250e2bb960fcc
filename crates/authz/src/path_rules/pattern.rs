//! One pattern of a rule about files: what it means, and what is wrong with it.

/// What a pattern names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// A file or directory of this name at any depth, and everything in it.
    Name(String),
    /// One path from the root, and everything in it.
    Path(String),
    /// Everything in a directory.
    Tree(String),
    /// Whatever one of these globs matches.
    Globs(Vec<String>),
}

const WILD: &[char] = &['*', '?', '[', ']', '{', '}', '\\'];

/// Reads a pattern, or says what to write instead.
pub(super) fn parse(text: &str) -> Result<Pattern, String> {
    check(text)?;
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let Some((last, above)) = parts.split_last() else {
        return Err(format!("`{text}` names nothing; `**` is everything in a root"));
    };
    let tree = text.ends_with('/') || *last == "**";
    let wild = |part: &&str| part.contains(WILD);
    let path = parts.join("/");
    Ok(match above {
        [] if !text.contains('/') && wild(last) => Pattern::Globs(vec![format!("**/{path}")]),
        [] if !text.contains('/') => Pattern::Name(path),
        ["**"] if !wild(last) && !tree => Pattern::Name((*last).to_owned()),
        _ if tree && !above.iter().any(wild) && *last == "**" => Pattern::Tree(above.join("/")),
        _ if !parts.iter().any(wild) && tree => Pattern::Tree(path),
        _ if !parts.iter().any(wild) => Pattern::Path(path),
        _ if *last == "**" => Pattern::Globs(vec![path]),
        _ if tree => Pattern::Globs(vec![format!("{path}/**")]),
        _ if wild(last) => Pattern::Globs(vec![path]),
        _ => Pattern::Globs(vec![format!("{path}/**"), path]),
    })
}

fn check(text: &str) -> Result<(), String> {
    let shown = ringfence_types::Bytes::from(text).display();
    if text.is_empty() {
        return Err("an empty pattern names nothing; `**` is everything in a root".to_owned());
    }
    if text.contains('\0') {
        return Err(format!("`{shown}` contains a NUL byte, which no path has; remove it"));
    }
    if let Some(rest) = text.strip_prefix('!') {
        return Err(format!("`{shown}`: exceptions are written as `except = [\"{rest}\"]` of the rule"));
    }
    if text.starts_with('/') || text.starts_with('~') {
        let rest = text.trim_start_matches(['/', '~']);
        return Err(format!("`{shown}` is absolute; patterns are relative to a root: write `./{rest}`"));
    }
    if text.split('/').any(|part| part == "..") {
        return Err(format!("`{shown}` leads upwards; name the path from the root, without `..`"));
    }
    if text.split('/').any(|part| part != "**" && part.contains("**")) {
        return Err(format!("`{shown}`: `**` stands alone between slashes; use `*` inside a name"));
    }
    Ok(())
}
