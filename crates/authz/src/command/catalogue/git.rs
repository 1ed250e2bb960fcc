//! git: its global options and its subcommands.
//!
//! A repository can make git run programs by its configuration alone; that is asked of the machine
//! ([`Facts::git_programs`](crate::Facts::git_programs)), not of these tables.

use ringfence_types::Risk;

use crate::command::options::OptionEffect::{
    Enter, Execute, Format, Network, Pattern, PatternFile, ReadLines, Unclear, Write,
};
use crate::command::options::{
    OperandSpec, OptionGroup, OptionValue, ProgramSpec, executes, flags, glued, reads, unclear, values, with,
    writes,
};

pub(in crate::command) static GLOBAL: ProgramSpec = ProgramSpec::new(
    "git",
    OperandSpec::Text,
    &[
        flags("P", "no-pager no-replace-objects no-optional-locks no-lazy-fetch no-advice"),
        // They change what every path of the command means.
        unclear("", "literal-pathspecs glob-pathspecs noglob-pathspecs icase-pathspecs"),
        with(Enter, OptionValue::Required, "C", ""),
        executes("c", "config-env"),
        with(Execute, OptionValue::Glued, "", "exec-path"),
        with(Execute, OptionValue::None, "p", "paginate"),
        with(Unclear, OptionValue::Required, "", "git-dir work-tree namespace super-prefix attr-source"),
        unclear("", "bare"),
    ],
)
.options_first();

/// What is known about a subcommand.
pub(in crate::command) fn subcommand(name: &[u8]) -> &'static ProgramSpec {
    let known = |program: &&ProgramSpec| program.name.as_bytes().strip_prefix(b"git-") == Some(name);
    SUBCOMMANDS.iter().find(known).unwrap_or(&OTHER)
}

/// Everything that is not listed below: what is known to do harm in one of them.
static OTHER: ProgramSpec = ProgramSpec::new(
    "git-other",
    OperandSpec::Revisions,
    &[
        values("m", "message author date trailer"),
        reads("F", "file pathspec-from-file"),
        executes(
            "",
            "exec extcmd upload-pack receive-pack sendmail-cmd smtp-server to-cmd cc-cmd header-cmd tool",
        ),
        with(Execute, OptionValue::None, "", "textconv ext-diff filters show-signature"),
        writes("", "output output-directory export-marks"),
        unclear("", "template separate-git-dir import-marks"),
        with(Network, OptionValue::Required, "", "remote"),
    ],
)
.dangers_only()
.risk(Risk::Medium);

/// Options of everything that shows a difference.
const DIFF: &[OptionGroup] = &[
    flags(
        "pusRaWbwzrth",
        "patch no-patch function-context no-function-context raw patch-with-raw patch-with-stat numstat shortstat \
         cumulative check summary name-only name-status compact-summary no-compact-summary binary full-index \
         no-full-index no-color no-abbrev no-prefix default-prefix irreversible-delete find-copies-harder \
         no-find-copies-harder no-renames renames rename-empty no-rename-empty follow no-follow minimal ignore-all-space \
         ignore-space-change ignore-space-at-eol ignore-cr-at-eol ignore-blank-lines indent-heuristic \
         no-indent-heuristic patience histogram no-color-moved no-color-moved-ws no-relative text no-text exit-code \
         no-exit-code quiet no-quiet no-ext-diff no-textconv ita-invisible-in-index ita-visible-in-index pickaxe-all \
         pickaxe-regex combined-all-paths cc remerge-diff no-diff-merges",
    ),
    glued(
        "MCBXDU",
        "stat unified dirstat dirstat-by-file color abbrev break-rewrites find-renames find-copies word-diff color-words \
         color-moved relative ignore-submodules",
    ),
    values(
        "lSGI",
        "stat-width stat-name-width stat-graph-width stat-count ws-error-highlight src-prefix dst-prefix line-prefix \
         inter-hunk-context output-indicator-new output-indicator-old output-indicator-context ignore-matching-lines \
         diff-algorithm anchored word-diff-regex color-moved-ws find-object diff-filter rotate-to skip-to diff-merges",
    ),
    reads("O", ""),
    writes("", "output"),
    with(Execute, OptionValue::None, "", "ext-diff textconv"),
    // It runs git in every submodule, with the configuration of that one.
    with(Execute, OptionValue::Glued, "", "submodule"),
];

/// `log` and `show`.
const LOG: &[OptionGroup] = &[
    flags(
        "gicmqEFP",
        "source no-source use-mailmap no-use-mailmap mailmap no-mailmap clear-decorations no-decorate \
         oneline graph no-graph all merges no-merges first-parent exclude-first-parent-only \
         no-min-parents no-max-parents all-match invert-grep regexp-ignore-case basic-regexp extended-regexp \
         fixed-strings perl-regexp walk-reflogs merge boundary left-only right-only left-right cherry cherry-pick \
         cherry-mark not reflog single-worktree reverse date-order author-date-order topo-order parents \
         children relative-date abbrev-commit no-abbrev-commit no-notes show-notes-by-default dense sparse \
         full-history simplify-merges simplify-by-decoration show-pulls remove-empty no-expand-tabs \
         log-size ignore-missing bisect timestamp",
    ),
    glued(
        "",
        "min-parents max-parents decorate branches tags remotes no-walk notes show-notes ancestry-path expand-tabs \
         show-linear-break",
    ),
    values(
        "n",
        "decorate-refs decorate-refs-exclude max-count skip since after until before since-as-filter max-age min-age \
         author committer grep grep-reflog glob exclude exclude-hidden date encoding",
    ),
    with(Format, OptionValue::Glued, "", "format pretty"),
    with(ReadLines, OptionValue::Required, "L", ""),
    // It runs gpg.
    with(Execute, OptionValue::None, "", "show-signature"),
    flags("", "no-show-signature"),
    // Revisions come from elsewhere.
    with(Unclear, OptionValue::None, "", "stdin"),
];

pub(super) static SUBCOMMANDS: &[ProgramSpec] = &[
    // It writes files of any name, as `mv` does.
    ProgramSpec::new("git-mv", OperandSpec::Write, &[]).dangers_only().risk(Risk::Medium),
    ProgramSpec::new(
        "git-status",
        OperandSpec::Pathspecs,
        &[
            flags(
                "sbvzh",
                "short branch verbose show-stash ahead-behind no-ahead-behind long null renames no-renames no-column \
                 no-short no-branch no-verbose no-show-stash",
            ),
            glued("uM", "porcelain untracked-files ignored ignore-submodules column find-renames"),
        ],
    )
    .listed(),
    ProgramSpec::new(
        "git-diff",
        OperandSpec::Revisions,
        &[
            flags("0123", "cached staged merge-base base ours theirs"),
            // It compares files that are in no repository.
            with(Unclear, OptionValue::None, "", "no-index"),
        ],
    )
    .sharing(DIFF)
    .listed(),
    ProgramSpec::new("git-log", OperandSpec::Revisions, LOG).sharing(DIFF).listed().numbers(),
    ProgramSpec::new("git-show", OperandSpec::Revisions, LOG).sharing(DIFF).listed().numbers(),
    ProgramSpec::new(
        "git-rev-parse",
        OperandSpec::Revisions,
        &[
            flags(
                "qh",
                "revs-only no-revs flags no-flags verify quiet sq symbolic symbolic-full-name all local-env-vars \
                 git-dir absolute-git-dir git-common-dir is-inside-git-dir is-inside-work-tree is-bare-repository \
                 is-shallow-repository show-cdup show-prefix show-toplevel show-superproject-working-tree \
                 shared-index-path not keep-dashdash stop-at-non-option",
            ),
            glued(
                "",
                "short abbrev-ref branches tags remotes show-object-format show-ref-format exclude exclude-hidden glob \
                 disambiguate since after until before path-format",
            ),
            values("", "default git-path"),
            with(Unclear, OptionValue::None, "", "parseopt sq-quote"),
            with(Unclear, OptionValue::Required, "", "resolve-git-dir prefix"),
        ],
    )
    .listed(),
    ProgramSpec::new(
        "git-grep",
        OperandSpec::PatternThenRevisions,
        &[
            flags(
                "viwaIrEGFPnhHlLzocpWq",
                "cached untracked no-untracked exclude-standard no-exclude-standard invert-match ignore-case word-regexp \
                 text recursive no-recursive extended-regexp basic-regexp fixed-strings perl-regexp line-number \
                 no-line-number column no-column full-name files-with-matches name-only files-without-match null \
                 only-matching count no-color break heading show-function function-context and or not quiet all-match \
                 no-recurse-submodules no-textconv index ext-grep no-ext-grep",
            ),
            glued("", "color"),
            values("ABCm", "max-depth after-context before-context context threads max-count"),
            with(Pattern, OptionValue::Required, "e", ""),
            with(PatternFile, OptionValue::Required, "f", ""),
            with(Execute, OptionValue::Glued, "O", "open-files-in-pager"),
            with(Execute, OptionValue::None, "", "textconv recurse-submodules"),
            with(Unclear, OptionValue::None, "", "no-index"),
        ],
    )
    .listed()
    .numbers(),
    ProgramSpec::new(
        "git-branch",
        OperandSpec::Text,
        &[
            flags("vqraih", "verbose quiet remotes all omit-empty ignore-case no-color no-column no-abbrev"),
            glued("", "color abbrev column"),
            with(Format, OptionValue::Required, "", "format sort"),
            // These make it list whatever else is there.
            with(Pattern, OptionValue::None, "l", "list show-current"),
            with(Pattern, OptionValue::Required, "", "contains no-contains with without merged no-merged points-at"),
            with(Write, OptionValue::None, "dDmMcCft", "delete move copy force create-reflog track no-track set-upstream"),
            with(Write, OptionValue::None, "", "unset-upstream edit-description recurse-submodules"),
            with(Write, OptionValue::Required, "u", "set-upstream-to"),
        ],
    )
    .listed(),
    ProgramSpec::new(
        "git-push",
        OperandSpec::Text,
        &[executes("", "receive-pack exec"), values("o", "repo push-option")],
    )
    .dangers_only()
    .risk(Risk::High),
    ProgramSpec::new(
        "git-rebase",
        OperandSpec::Text,
        &[executes("x", "exec"), with(Execute, OptionValue::None, "i", "interactive")],
    )
    .dangers_only()
    .risk(Risk::High),
    ProgramSpec::new("git-difftool", OperandSpec::Revisions, &[executes("xt", "extcmd tool")]).dangers_only().risk(Risk::High),
    ProgramSpec::new(
        "git-clone",
        OperandSpec::Text,
        &[executes("uc", "upload-pack config template"), with(Unclear, OptionValue::None, "", "recurse-submodules recursive")],
    )
    .dangers_only()
    .risk(Risk::High),
    ProgramSpec::new("git-fetch", OperandSpec::Text, &[executes("", "upload-pack")]).dangers_only().risk(Risk::High),
    ProgramSpec::new("git-pull", OperandSpec::Text, &[executes("", "upload-pack")]).dangers_only().risk(Risk::High),
    ProgramSpec::new("git-ls-remote", OperandSpec::Text, &[executes("", "upload-pack exec")]).dangers_only().risk(Risk::High),
    ProgramSpec::new(
        "git-archive",
        OperandSpec::Text,
        &[writes("o", "output"), executes("", "exec"), with(Network, OptionValue::Required, "", "remote"), reads("", "add-file")],
    )
    .dangers_only(),
    ProgramSpec::new("git-format-patch", OperandSpec::Text, &[writes("o", "output-directory output")]).dangers_only(),
    ProgramSpec::new(
        "git-commit",
        OperandSpec::Pathspecs,
        &[
            values("mCc", "message reuse-message reedit-message fixup squash author date cleanup trailer"),
            reads("Ft", "file template pathspec-from-file"),
            with(Execute, OptionValue::Glued, "S", "gpg-sign"),
        ],
    )
    .dangers_only(),
    ProgramSpec::new("git-tag", OperandSpec::Text, &[values("m", "message"), reads("F", "file"), with(Execute, OptionValue::None, "sv", "sign verify")])
        .dangers_only(),
];
