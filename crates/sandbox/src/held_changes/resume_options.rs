//! What git has written down to go on with an interrupted `am`, `rebase` or `cherry-pick`, and takes back without a check.
//!
//! A list of what is harmless, like that of the settings: a command can write these files by itself.

use super::git_paths::is_plain_path;

/// The strategies that git has itself. Any other is the name of a program, also of one in the checkout.
pub(super) fn is_strategy(name: &[u8]) -> bool {
    matches!(name, b"octopus" | b"ort" | b"ours" | b"recursive" | b"resolve" | b"subtree")
}

/// Whether each option of a `strategy_opts` is one of git's own.
pub(super) fn are_strategy_options(content: &[u8]) -> bool {
    let unquoted = |word| strip_quotes(word, b'"').strip_prefix(b"--").unwrap_or(strip_quotes(word, b'"'));
    words(content).all(|word| is_strategy_option(unquoted(word)))
}

/// Whether git's own strategies have this option. Git hands each to `git read-tree` where the strategy is a script, which has
/// options that write a file anywhere.
pub(super) fn is_strategy_option(option: &[u8]) -> bool {
    const ALONE: [&[u8]; 14] = [
        b"find-renames",
        b"histogram",
        b"ignore-all-space",
        b"ignore-cr-at-eol",
        b"ignore-space-at-eol",
        b"ignore-space-change",
        b"minimal",
        b"no-renames",
        b"no-renormalize",
        b"ours",
        b"patience",
        b"renormalize",
        b"subtree",
        b"theirs",
    ];
    let word = |value: &[u8]| value.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'%');
    let valued = |name: &[u8]| option.strip_prefix(name);
    ALONE.contains(&option)
        || valued(b"diff-algorithm=").is_some_and(word)
        || valued(b"find-renames=").is_some_and(word)
        || valued(b"rename-threshold=").is_some_and(word)
        || valued(b"subtree=").is_some_and(is_plain_directory)
}

/// Whether `git am` hands nothing to `git apply` but options that `git am` has itself. With `--unsafe-paths` a patch writes
/// hooks, with `--build-fake-ancestor` any file is replaced.
pub(super) fn are_apply_options(content: &[u8]) -> bool {
    words(content).all(|word| is_apply_option(strip_quotes(word, b'\'')))
}

fn is_apply_option(option: &[u8]) -> bool {
    const ALONE: [&[u8]; 3] = [b"--ignore-whitespace", b"--ignore-space-change", b"--reject"];
    let number = |value: &[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let word = |value: &[u8]| value.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-');
    let valued = |name: &[u8]| option.strip_prefix(name);
    ALONE.contains(&option)
        || valued(b"-C").is_some_and(number)
        || valued(b"-p").is_some_and(number)
        || valued(b"--whitespace=").is_some_and(word)
        || valued(b"--directory=").is_some_and(is_plain_directory)
}

/// Whether each ref of an `update-refs` (its name, then two objects) lies in `refs`. Git writes a file of the git directory for
/// any other.
pub(super) fn are_plain_updates(content: &[u8]) -> bool {
    let mut names = content.split(|byte| *byte == b'\n').step_by(3);
    names.all(|name| name.is_empty() || is_ref(name))
}

/// Whether each `update-ref` of a list of steps names a ref in `refs`. `git rebase --edit-todo` hands the others to the end of the
/// rebase.
pub(super) fn are_plain_steps(content: &[u8]) -> bool {
    content.split(|byte| *byte == b'\n').all(|line| {
        let mut words =
            line.split(|byte| byte.is_ascii_whitespace() || *byte == 0).filter(|word| !word.is_empty());
        !matches!(words.next(), Some(b"update-ref" | b"u")) || words.next().is_none_or(is_ref)
    })
}

/// Whether a file that git takes for a ref stands for itself or for another in `refs`. Git writes through any other: an
/// `ORIG_HEAD` that stands for `commondir` makes `git reset` write which configuration git reads.
pub(super) fn is_plain_ref(content: &[u8]) -> bool {
    content.strip_prefix(b"ref:").is_none_or(|target| is_ref(target.trim_ascii_start()))
}

/// Whether a name is that of a ref in `refs`.
pub(super) fn is_ref(name: &[u8]) -> bool {
    name.starts_with(b"refs/") && !name.windows(2).any(|window| window == b"..")
}

/// Whether a file that older versions of git hand to a shell is words in quotes, each behind one of `names` or alone.
pub(super) fn are_quoted_words(content: &[u8], names: &[&[u8]]) -> bool {
    let mut rest = content.trim_ascii_start();
    while !rest.is_empty() {
        let named = names.iter().find_map(|name| rest.strip_prefix(*name));
        let Some(after) = after_quoted(named.unwrap_or(rest)) else { return false };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return false;
        }
        rest = after.trim_ascii_start();
    }
    true
}

/// What follows a word in single quotes. Git takes `'` and `!` out of them, with a backslash.
fn after_quoted(word: &[u8]) -> Option<&[u8]> {
    let mut rest = word.strip_prefix(b"'")?;
    loop {
        let end = rest.iter().position(|byte| *byte == b'\'')?;
        rest = rest.get(end + 1..)?;
        match rest.strip_prefix(b"\\''").or_else(|| rest.strip_prefix(b"\\!'")) {
            Some(inside) => rest = inside,
            None => return Some(rest),
        }
    }
}

/// A directory of the checkout, in letters that no shell takes for more.
fn is_plain_directory(path: &[u8]) -> bool {
    path.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(byte)) && is_plain_path(path)
}

fn words(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn strip_quotes(word: &[u8], quote: u8) -> &[u8] {
    word.strip_prefix(&[quote]).and_then(|word| word.strip_suffix(&[quote])).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_git_apply_lead_nowhere() {
        for options in [
            "",
            "\n",
            " '-C1' '-p2' '--whitespace=error-all' '--ignore-whitespace' '--reject' '--directory=a/b'\n",
        ] {
            assert!(are_apply_options(options.as_bytes()), "{options}");
        }
        for options in [
            "'--unsafe-paths' '--apply'\n",
            "'--build-fake-ancestor=/home/u/x'\n",
            "'--directory=../x'",
            "'--directory=/x'",
            "'--directory=.git/hooks'",
            "'-p'",
            "'-C1'\0'--unsafe-paths'",
            "'-p1'\\''--apply'",
            "'-3'",
        ] {
            assert!(!are_apply_options(options.as_bytes()), "{options}");
        }
    }

    #[test]
    fn options_of_a_strategy_are_its_own() {
        for options in [
            "",
            "\"ours\"\n",
            " --ours --patience\n",
            "\"patience\" \"find-renames=50%\" \"subtree=a/b\" \"subtree=\" \"diff-algorithm=histogram\"",
        ] {
            assert!(are_strategy_options(options.as_bytes()), "{options}");
        }
        for options in [
            "\"index-output=../x\"",
            " --index-output=x",
            "\"subtree=../x\"",
            "\"subtree=.git\"",
            "\"subtree=x --index-output=y\"",
            "\"find-renames=$(x)\"",
            "our\\s",
            "prefix=x",
        ] {
            assert!(!are_strategy_options(options.as_bytes()), "{options}");
        }
    }

    #[test]
    fn words_for_a_shell_are_quoted() {
        let names: &[&[u8]] = &[b"A=", b"B="];
        for text in ["", "\n", "'a b' 'it'\\''s'\\!''\n", "A='x'\nB='@1 +0'\n", "A='$(x)\n`y`;z'"] {
            assert!(are_quoted_words(text.as_bytes(), names), "{text}");
        }
        for text in [
            "x",
            "'a';x",
            "'a'$(x)",
            "'a",
            "A=x",
            "C='x'",
            "'a'\\x'b'",
            "A='x' y",
            "'a'\0;x",
            "'a'\\'';x",
            "A=B='x'",
        ] {
            assert!(!are_quoted_words(text.as_bytes(), names), "{text}");
        }
    }

    #[test]
    fn refs_lie_in_refs() {
        for content in
            ["", "0123\n", "ref: refs/heads/x\n", "ref:refs/x", "ref:\t refs/remotes/o/HEAD", "reference"]
        {
            assert!(is_plain_ref(content.as_bytes()), "{content}");
        }
        for content in
            ["ref: commondir\n", "ref:HEAD", "ref: hooks/x", "ref: refs/../config", "ref:", "ref:\0refs/x"]
        {
            assert!(!is_plain_ref(content.as_bytes()), "{content}");
        }
        assert!(are_plain_updates(b"") && are_plain_updates(b"refs/heads/a\n00\n11\nrefs/heads/b\n00\n11\n"));
        assert!(are_plain_steps(
            b"pick 00 update-ref x\nupdate-ref refs/heads/a\n# u x\nu\n\tu refs/tags/b\r\n"
        ));
        for step in ["update-ref x/commondir", "pick 00\nu\tmodules/x/commondir\n", " u refs/../x"] {
            assert!(!are_plain_steps(step.as_bytes()), "{step}");
        }
        assert!(!are_plain_updates(b"commondir\n00\n11\n"));
        assert!(!are_plain_updates(b"refs/heads/a\n00\n11\ncommondir\n00\n11\n"));
    }
}
