//! The programs on the list of `guarded`: every option that only changes what is shown.

use crate::command::options::OptionEffect::{Endless, Execute, Follow, Pattern, PatternFile, Unclear};
use crate::command::options::{
    OperandSpec, OptionValue, ProgramSpec, executes, flags, glued, reads, values, with,
};

const LS: &[crate::command::options::OptionGroup] = &[
    flags(
        "aAbBcCdDfgGhHiklLmnNopqQrRsStuUvxXZ1",
        "all almost-all author escape ignore-backups directory dired file-type full-time group-directories-first \
         no-group human-readable si dereference-command-line dereference-command-line-symlink-to-dir inode kibibytes \
         dereference numeric-uid-gid literal hide-control-chars show-control-chars quote-name reverse recursive size \
         context zero help version",
    ),
    glued("F", "color classify hyperlink"),
    values(
        "ITw",
        "block-size format hide indicator-style ignore quoting-style sort time time-style tabsize width",
    ),
];

pub(super) static PROGRAMS: &[ProgramSpec] = &[
    ProgramSpec::new("ls", OperandSpec::List, LS).listed().any_file_name(),
    ProgramSpec::new("dir", OperandSpec::List, LS).listed().any_file_name(),
    ProgramSpec::new("pwd", OperandSpec::Text, &[flags("LP", "logical physical help version")]).listed(),
    ProgramSpec::new("echo", OperandSpec::Text, &[]).listed().dangers_only().any_file_name(),
    ProgramSpec::new("printf", OperandSpec::Text, &[]).listed().dangers_only().any_file_name(),
    ProgramSpec::new("true", OperandSpec::Text, &[]).listed().dangers_only().any_file_name(),
    ProgramSpec::new("false", OperandSpec::Text, &[]).listed().dangers_only().any_file_name(),
    ProgramSpec::new(
        "cat",
        OperandSpec::Read,
        &[flags(
            "AbeEnstTuv",
            "show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting help version",
        )],
    )
    .listed()
    .any_file_name(),
    // As `cat`, on systems that call it so (S001-20).
    ProgramSpec::new("type", OperandSpec::Read, &[]).listed(),
    ProgramSpec::new(
        "head",
        OperandSpec::Read,
        &[flags("qvz", "quiet silent verbose zero-terminated help version"), values("cn", "bytes lines")],
    )
    .listed()
    .any_file_name()
    .numbers(),
    ProgramSpec::new(
        "tail",
        OperandSpec::Read,
        &[
            flags("qvz", "quiet silent verbose zero-terminated retry help version"),
            values("cns", "bytes lines sleep-interval max-unchanged-stats pid"),
            with(Endless, OptionValue::None, "F", ""),
            with(Endless, OptionValue::Glued, "f", "follow"),
        ],
    )
    .listed()
    .any_file_name()
    .numbers(),
    ProgramSpec::new(
        "wc",
        OperandSpec::Read,
        &[
            flags("cmlLw", "bytes chars lines max-line-length words help version"),
            values("", "total"),
            // It opens whatever the file lists.
            with(Unclear, OptionValue::Required, "", "files0-from"),
        ],
    )
    .listed()
    .any_file_name(),
    ProgramSpec::new(
        "grep",
        OperandSpec::PatternThenRead,
        &[
            flags(
                "EFGPiywxzsvVbnHhoqaIrLlcTZU",
                "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case word-regexp \
                 line-regexp null-data no-messages invert-match version help byte-offset line-number line-buffered \
                 with-filename no-filename only-matching quiet silent text recursive \
                 files-without-match files-with-matches count initial-tab null binary unix-byte-offsets \
                 no-group-separator",
            ),
            values(
                "mdDABC",
                "max-count label binary-files directories devices include exclude exclude-dir before-context \
                 after-context context group-separator",
            ),
            glued("", "color colour"),
            with(Pattern, OptionValue::Required, "e", "regexp"),
            with(PatternFile, OptionValue::Required, "f", "file"),
            with(Follow, OptionValue::None, "R", "dereference-recursive"),
            reads("", "exclude-from"),
        ],
    )
    .listed()
    .any_file_name()
    .numbers(),
    ProgramSpec::new(
        "rg",
        OperandSpec::PatternThenRead,
        &[
            flags(
                "abcFHhIilNnoPpqSsUuVvwx0.",
                "auto-hybrid-regex binary block-buffered byte-offset case-sensitive column count count-matches crlf \
                 debug files-with-matches files-without-match fixed-strings glob-case-insensitive heading help \
                 hidden ignore ignore-case ignore-dot ignore-exclude ignore-file-case-insensitive ignore-files \
                 ignore-global ignore-messages ignore-parent ignore-vcs include-zero invert-match json line-buffered \
                 line-number line-regexp max-columns-preview messages mmap multiline multiline-dotall \
                 no-auto-hybrid-regex no-binary no-block-buffered no-byte-offset no-column no-config \
                 no-context-separator no-crlf no-encoding no-filename no-fixed-strings no-follow \
                 no-glob-case-insensitive no-heading no-hidden no-ignore no-ignore-dot no-ignore-exclude \
                 no-ignore-file-case-insensitive no-ignore-files no-ignore-global no-ignore-messages no-ignore-parent \
                 no-ignore-vcs no-include-zero no-invert-match no-json no-line-buffered no-line-number \
                 no-max-columns-preview no-messages no-mmap no-multiline no-multiline-dotall no-one-file-system no-pcre2 \
                 no-pcre2-unicode no-pre no-require-git no-search-zip no-sort-files no-stats no-text no-trim no-unicode \
                 null null-data one-file-system only-matching passthru passthrough pcre2 pcre2-unicode pcre2-version \
                 pretty quiet require-git smart-case sort-files stats stop-on-nonmatch text trace trim unicode \
                 unrestricted version vimgrep with-filename word-regexp",
            ),
            values(
                "ABCdEgjMmrTt",
                "after-context before-context context max-depth maxdepth encoding glob iglob threads max-columns \
                 max-count max-filesize replace type type-not type-add type-clear colors color sort sortr \
                 context-separator field-context-separator field-match-separator path-separator engine dfa-size-limit \
                 regex-size-limit pre-glob hyperlink-format generate",
            ),
            with(Pattern, OptionValue::Required, "e", "regexp"),
            // Modes without a pattern.
            with(Pattern, OptionValue::None, "", "files type-list"),
            with(PatternFile, OptionValue::Required, "f", "file"),
            with(Follow, OptionValue::None, "L", "follow"),
            reads("", "ignore-file"),
            executes("", "pre hostname-bin"),
            with(Execute, OptionValue::None, "z", "search-zip"),
        ],
    )
    .listed(),
];
