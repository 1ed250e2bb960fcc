//! Names that are in no family and that some program takes orders from all the same.
//!
//! A caller may set them, because many are ordinary settings of one program. Where only listed commands run without a
//! question, setting one is a question: `RIPGREP_CONFIG_PATH` makes a listed `rg` run programs.

use super::starts_with;

/// Obeyed by a listed program, by a shell, or by a program that operators commonly allow.
const NAMES: &[&str] = &[
    "ACKRC",
    "ACK_OPTIONS",
    "ARGV0",
    "BAT_CONFIG_PATH",
    "BAT_OPTS",
    "BZIP",
    "BZIP2",
    "CARGO",
    "CONFIG_SITE",
    "CONFIG_SHELL",
    "EXECIGNORE",
    "FZF_DEFAULT_COMMAND",
    "FZF_DEFAULT_OPTS",
    "FZF_DEFAULT_OPTS_FILE",
    "GLOBIGNORE",
    "GREP_OPTIONS",
    "GROFF_COMMAND_PREFIX",
    "GROFF_FONT_PATH",
    "GROFF_TMAC_PATH",
    "GZIP",
    "LESSSECURE",
    "LS_OPTIONS",
    "MANOPT",
    "MANPATH",
    "MANROFFOPT",
    "MAILCAPS",
    "MODULE_PATH",
    "MORE",
    "MYSQL_HOME",
    "NULLCMD",
    "PATCH_GET",
    "PERLDOC",
    "POSIXLY_CORRECT",
    "PROMPT",
    "PS1",
    "PS2",
    "PS3",
    "PSQLRC",
    "READNULLCMD",
    "RIPGREP_CONFIG_PATH",
    "RMT",
    "RSH",
    "RSYNC_CONNECT_PROG",
    "RSYNC_RSH",
    "RUSTFMT",
    "SCREENRC",
    "STTY",
    "TAPE",
    "TAR",
    "TAR_OPTIONS",
    "TERMCAP",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMPATH",
    "UNZIP",
    "UNZIPOPT",
    "VIM",
    "VIMRUNTIME",
    "XZ_DEFAULTS",
    "XZ_OPT",
    "ZIP",
    "ZIPINFO",
    "ZIPINFOOPT",
    "ZIPOPT",
];

/// Names that begin so, unless they are known to be harmless.
const PREFIXES: &[&str] = &["BASH", "GIT_", "ZSH"];
const HARMLESS: &[&str] = &["GIT_OPTIONAL_LOCKS", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_LITERAL_PATHSPECS"];

/// Whether a program is known that takes orders from the variable.
pub(crate) fn steers(name: &[u8]) -> bool {
    let named = NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let prefixed = PREFIXES.iter().any(|prefix| starts_with(name, prefix));
    named || prefixed && !HARMLESS.iter().any(|prefix| starts_with(name, prefix))
}
