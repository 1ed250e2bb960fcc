//! Names that are in no family and that some program takes orders from all the same, and names that are known to be harmless.
//!
//! A caller may set any of them, because many are ordinary settings of one program. Where only listed commands run without
//! a question, setting one is a question unless it is known to be harmless: `RIPGREP_CONFIG_PATH` makes a listed `rg` run
//! programs, and a Makefile makes an order of whatever name it likes.

use super::starts_with;

/// Obeyed by a listed program, by a shell, or by a program that operators commonly allow.
const NAMES: &[&str] = &[
    "ACKRC",
    "ACK_OPTIONS",
    "ARGV0",
    "AS",
    "ASAN_OPTIONS",
    "BAT_CONFIG_PATH",
    "BAT_OPTS",
    "BISON_PKGDATADIR",
    "BLOCK_SIZE",
    "BZIP",
    "BZIP2",
    "CARGO",
    "CHARSETALIASDIR",
    "CONFIG_SHELL",
    "CONFIG_SITE",
    "CVSROOT",
    "DEPENDENCIES_OUTPUT",
    "DIFF_OPTIONS",
    "EMACSDATA",
    "EXECIGNORE",
    "FC",
    "FIND_BLOCK_SIZE",
    "FZF_DEFAULT_COMMAND",
    "FZF_DEFAULT_OPTS",
    "FZF_DEFAULT_OPTS_FILE",
    "GDK_PIXBUF_MODULE_FILE",
    "GETCONF_DIR",
    "GETOPT_COMPATIBLE",
    "GLOBIGNORE",
    "GMON_OUT_PREFIX",
    "GNUPGHOME",
    "GOAUTH",
    "GOBIN",
    "GOCACHE",
    "GOCACHEPROG",
    "GODEBUG",
    "GOEXPERIMENT",
    "GOFIPS140",
    "GOMODCACHE",
    "GOPACKAGESDRIVER",
    "GOTMPDIR",
    "GOVCS",
    "GOWORK",
    "GREP_OPTIONS",
    "GROFF_COMMAND_PREFIX",
    "GROFF_FONT_PATH",
    "GROFF_TMAC_PATH",
    "GZIP",
    "HOSTCC",
    "IDEA_JDK",
    "JAVACMD",
    "JAVA_HOME",
    "JDK_HOME",
    "JQ_LIBRARY_PATH",
    "LESSCHARDEF",
    "LESSHISTFILE",
    "LESSSECURE",
    "LESSUTFCHARDEF",
    "LEX",
    "LN_S",
    "LSAN_OPTIONS",
    "LS_OPTIONS",
    "M4",
    "M4PATH",
    "MAILCAPS",
    "MAILPATH",
    "MAKE",
    "MAKESHELL",
    "MALLOC_CONF",
    "MALLOC_TRACE",
    "MANOPT",
    "MANPATH",
    "MANROFFOPT",
    "MANSECT",
    "MEMUSAGE_OUTPUT",
    "MODULE_PATH",
    "MORE",
    "MYSQL_HOME",
    "NETRC",
    "NM",
    "NODE",
    "NULLCMD",
    "OBJCOPY",
    "OUTPUT_CHARSET",
    "PATCH_GET",
    "PERL",
    "PERL5SHELL",
    "PERLDOC",
    "PERLIO",
    "PERLIO_DEBUG",
    "PERL_HASH_SEED_DEBUG",
    "PERL_UNICODE",
    "POSIXLY_CORRECT",
    "PROG",
    "PROMPT",
    "PS1",
    "PS2",
    "PS3",
    "PSQLRC",
    "PYTHON",
    "PYTHON3",
    "QUOTING_STYLE",
    "RANLIB",
    "READELF",
    "READNULLCMD",
    "RIPGREP_CONFIG_PATH",
    "RMT",
    "RSH",
    "RSYNC_CONNECT_PROG",
    "RSYNC_RSH",
    "RUBYPATH",
    "RUBYSHELL",
    "RUSTFMT",
    "SCREENRC",
    "SED",
    "SEGFAULT_SIGNALS",
    "SHELLCHECK_OPTS",
    "SIMPLE_BACKUP_SUFFIX",
    "SOCKS_SERVER",
    "SSLCERT",
    "STRIP",
    "STTY",
    "SUNPRO_DEPENDENCIES",
    "TABSIZE",
    "TAPE",
    "TAR",
    "TAR_OPTIONS",
    "TERMCAP",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMPATH",
    "TEXINPUTS",
    "TEXMFCNF",
    "TIME_STYLE",
    "TOOLCHAIN",
    "TSAN_OPTIONS",
    "TZDIR",
    "UBSAN_OPTIONS",
    "UNZIP",
    "UNZIPOPT",
    "VERSION_CONTROL",
    "VIM",
    "VIMRUNTIME",
    "VPATH",
    "WINDRES",
    "XARGS",
    "XZ_DEFAULTS",
    "XZ_OPT",
    "YACC",
    "ZIP",
    "ZIPINFO",
    "ZIPINFOOPT",
    "ZIPOPT",
];

/// Variables that change how something looks, or say who and when it is. In the letter case that programs read.
const PLAIN: &[&str] = &[
    "CARGO_TERM_COLOR",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "DEBIAN_FRONTEND",
    "FORCE_COLOR",
    "GREP_COLOR",
    "GREP_COLORS",
    "JQ_COLORS",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LS_COLORS",
    "NO_COLOR",
    "PY_COLORS",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
    "RUST_BACKTRACE",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TZ",
];
const PLAIN_PREFIXES: &[&str] = &["LC_", "GIT_AUTHOR_", "GIT_COMMITTER_"];

/// Whether a variable may be set for any listed command without a question. A value that names a place (`TZ=:/w/zone`,
/// `LANGUAGE=../w`) or that make would expand is none of those.
pub(crate) fn is_harmless(name: &[u8], value: &[u8]) -> bool {
    let prefixed = |prefix: &&str| name.starts_with(prefix.as_bytes());
    let known = PLAIN.iter().any(|known| known.as_bytes() == name) || PLAIN_PREFIXES.iter().any(prefixed);
    let plain = |byte: &u8| !byte.is_ascii_control() && !matches!(byte, b'/' | b'$' | b'`' | b'%' | b'\\');
    // `Europe/Berlin`.
    let zone = || {
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+');
        name == b"TZ" && !value.starts_with(b"/") && value.iter().all(word)
    };
    known && !is_foreign_character_set(name, value) && (value.iter().all(plain) || zone())
}

/// Variables by which a shell knows the character set of its text.
const CHARACTER_SETS: &[&str] = &["LANG", "LC_ALL", "LC_CTYPE"];

/// Whether a variable gives text a character set in which a byte of ASCII may be the second half of another character.
///
/// In GBK, Big5 and Shift JIS a letter may end with the byte of a backslash: what is an escaped quote for the reader of
/// shell text is the end of the quotes for bash, and what follows runs. Where commands are listed no shell gets these.
pub(crate) fn is_foreign_character_set(name: &[u8], value: &[u8]) -> bool {
    CHARACTER_SETS.iter().any(|known| known.as_bytes() == name) && !keeps_ascii(value)
}

/// `C`, `POSIX` and every locale with UTF-8. Which set a locale without a name for it has, only the machine knows.
fn keeps_ascii(locale: &[u8]) -> bool {
    let locale = locale.split(|byte| *byte == b'@').next().unwrap_or_default();
    let set = locale.iter().position(|byte| *byte == b'.').and_then(|at| locale.get(at + 1..));
    let is_utf8 = |set: &[u8]| set.eq_ignore_ascii_case(b"UTF-8") || set.eq_ignore_ascii_case(b"utf8");
    matches!(locale, b"" | b"C" | b"POSIX") || set.is_some_and(is_utf8)
}

/// Names that begin so, unless they are known to be harmless.
const PREFIXES: &[&str] = &[
    "BASH",
    "CARGO_",
    "CCACHE_",
    "CGO_",
    "CMAKE_",
    "CURL_",
    "GIT_",
    "GRADLE_",
    "KUBE",
    "NODE_",
    "PIP_",
    "PKG_CONFIG",
    "PYTHON",
    "RUSTC_",
    "SCCACHE_",
    "UV_",
    "ZSH",
];
/// `CMAKE_C_COMPILER_LAUNCHER`, `CARGO_ENCODED_RUSTDOCFLAGS`, `KBUILD_CFLAGS`, `JAVA_OPTS`.
const SUFFIXES: &[&str] =
    &["_LAUNCHER", "_WRAPPER", "FLAGS", "_OPTS", "_OPTIONS", "_COMMAND", "_CONFIG", "_HOME", "RCPATH"];
const HARMLESS: &[&str] = &[
    "CARGO_TERM_COLOR",
    "GIT_OPTIONAL_LOCKS",
    "GIT_AUTHOR_",
    "GIT_COMMITTER_",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
];

/// Whether a program is known that takes orders from the variable.
pub(crate) fn steers(name: &[u8]) -> bool {
    let named = NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let prefixed = PREFIXES.iter().any(|prefix| starts_with(name, prefix));
    let ends = |suffix: &&str| {
        let at = name.len().checked_sub(suffix.len());
        at.and_then(|at| name.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
    };
    named || SUFFIXES.iter().any(ends) || prefixed && !HARMLESS.iter().any(|prefix| starts_with(name, prefix))
}
