//! Programs that read and print. They are not on the list; a policy file may put them on it, and then these options
//! still ask.

use ringfence_types::Risk;

use crate::command::options::OptionEffect::{
    Delete, Enter, Execute, Pattern, PatternFile, Sed, Unclear, Write, WriteOperands,
};
use crate::command::options::{
    OperandSpec, OptionGroup, OptionValue, ProgramSpec, executes, flags, glued, reads, unclear, values, with,
    writes,
};

const SUMS: &[OptionGroup] = &[
    flags(
        "btzw",
        "binary check-only tag text zero ignore-missing quiet status strict warn base64 raw debug untagged help version",
    ),
    values("la", "length algorithm"),
    // It opens whatever the file lists.
    with(Unclear, OptionValue::None, "c", "check"),
];

const ENCODERS: &[OptionGroup] =
    &[flags("di", "decode ignore-garbage base64 base64url base32 base16 help version"), values("w", "wrap")];

pub(super) static PROGRAMS: &[ProgramSpec] = &[
    ProgramSpec::new(
        "sort",
        OperandSpec::Read,
        &[
            flags(
                "bcdfghiMnRrVCmsuz",
                "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort \
                 ignore-nonprinting month-sort numeric-sort random-sort reverse version-sort merge stable unique \
                 zero-terminated debug help version",
            ),
            glued("", "check"),
            values("ktS", "key field-separator buffer-size parallel batch-size sort"),
            reads("", "random-source"),
            with(Unclear, OptionValue::Required, "", "files0-from"),
            executes("", "compress-program"),
            writes("oT", "output temporary-directory"),
        ],
    ),
    ProgramSpec::new(
        "uniq",
        OperandSpec::ReadOne,
        &[
            flags("cdDiuz", "count repeated ignore-case unique zero-terminated help version"),
            glued("", "all-repeated group"),
            values("fsw", "skip-fields skip-chars check-chars"),
        ],
    ),
    ProgramSpec::new(
        "cut",
        OperandSpec::Read,
        &[
            flags("nsz", "complement only-delimited zero-terminated help version"),
            values("bcdf", "bytes characters delimiter fields output-delimiter"),
        ],
    )
    .any_file_name(),
    ProgramSpec::new(
        "tr",
        OperandSpec::Text,
        &[flags("cCdst", "complement delete squeeze-repeats truncate-set1 help version")],
    ),
    ProgramSpec::new(
        "diff",
        OperandSpec::Read,
        &[
            flags(
                "qscunerbBwiEZdaNPTty",
                "normal brief report-identical-files ed rcs side-by-side left-column suppress-common-lines show-c-function \
                 expand-tabs initial-tab suppress-blank-empty recursive no-dereference new-file \
                 unidirectional-new-file ignore-file-name-case no-ignore-file-name-case ignore-case \
                 ignore-tab-expansion ignore-trailing-space ignore-space-change ignore-all-space ignore-blank-lines text \
                 strip-trailing-cr minimal speed-large-files help version p",
            ),
            glued("", "color context unified"),
            values(
                "CUWIxFSD",
                "width ignore-matching-lines exclude show-function-line label starting-file ifdef tabsize horizon-lines \
                 palette line-format old-line-format new-line-format unchanged-line-format",
            ),
            flags("p", ""),
            reads("X", "exclude-from from-file to-file"),
            with(Execute, OptionValue::None, "l", "paginate"),
        ],
    )
    .numbers(),
    ProgramSpec::new("cmp", OperandSpec::Read, &[flags("bls", "print-bytes verbose quiet silent help version"), values("in", "ignore-initial bytes")]),
    ProgramSpec::new("comm", OperandSpec::Read, &[flags("123z", "check-order nocheck-order total zero-terminated help version"), values("", "output-delimiter")])
        .any_file_name(),
    ProgramSpec::new("nl", OperandSpec::Read, &[flags("p", "no-renumber help version"), values("bdfhilnsvw", "body-numbering section-delimiter footer-numbering header-numbering line-increment join-blank-lines number-format number-separator starting-line-number number-width")])
        .any_file_name(),
    ProgramSpec::new("paste", OperandSpec::Read, &[flags("sz", "serial zero-terminated help version"), values("d", "delimiters")])
        .any_file_name(),
    ProgramSpec::new("join", OperandSpec::Read, &[flags("iz", "ignore-case check-order nocheck-order header zero-terminated help version"), values("12aejotv", "")])
        .any_file_name(),
    ProgramSpec::new("fold", OperandSpec::Read, &[flags("bcs", "bytes characters spaces help version"), values("w", "width")])
        .any_file_name()
        .numbers(),
    ProgramSpec::new("fmt", OperandSpec::Read, &[flags("cstu", "crown-margin split-only tagged-paragraph uniform-spacing help version"), values("wpg", "width prefix goal")])
        .any_file_name()
        .numbers(),
    ProgramSpec::new("expand", OperandSpec::Read, &[flags("i", "initial help version"), values("t", "tabs")]).any_file_name(),
    ProgramSpec::new("unexpand", OperandSpec::Read, &[flags("a", "all first-only help version"), values("t", "tabs")])
        .any_file_name(),
    ProgramSpec::new("tac", OperandSpec::Read, &[flags("br", "before regex help version"), values("s", "separator")])
        .any_file_name(),
    ProgramSpec::new("rev", OperandSpec::Read, &[flags("0hV", "zero help version")]).any_file_name(),
    ProgramSpec::new("column", OperandSpec::Read, &[flags("tJexLndhV", "table json fillrows table-noheadings table-maxout keep-empty-lines help version"), values("scoNRHTWEOrpilC", "separator output-width output-separator table-columns table-right table-hide table-truncate table-wrap table-noextreme table-order tree tree-parent tree-id table-columns-limit table-column table-name")])
        .any_file_name(),
    ProgramSpec::new("seq", OperandSpec::Text, &[flags("w", "equal-width help version"), values("fs", "format separator")]).numbers(),
    ProgramSpec::new("basename", OperandSpec::Text, &[flags("az", "multiple zero help version"), values("s", "suffix")]),
    ProgramSpec::new("dirname", OperandSpec::Text, &[flags("z", "zero help version")]),
    ProgramSpec::new("realpath", OperandSpec::List, &[flags("eEmLPqsz", "canonicalize canonicalize-existing canonicalize-missing logical physical quiet strip no-symlinks zero help version"), values("", "relative-to relative-base")]),
    ProgramSpec::new("readlink", OperandSpec::List, &[flags("femnqsvz", "canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero help version")]),
    ProgramSpec::new("stat", OperandSpec::List, &[flags("Lft", "dereference file-system terse help version"), values("c", "format printf cached")]),
    ProgramSpec::new(
        "file",
        OperandSpec::Read,
        &[
            flags("bdEhiIkLlnNprsv0", "brief mime mime-type mime-encoding extension no-dereference dereference keep-going list no-buffer no-pad preserve-date raw special-files version help apple print0"),
            values("eFP", "exclude exclude-quiet separator parameter"),
            reads("mM", "magic-file"),
            with(Unclear, OptionValue::Required, "f", "files-from"),
            with(Execute, OptionValue::None, "zZ", "uncompress uncompress-noreport"),
            with(Write, OptionValue::None, "C", "compile"),
            unclear("S", "no-sandbox"),
        ],
    ),
    ProgramSpec::new(
        "du",
        OperandSpec::List,
        &[
            flags("0abcDHhklLmPSsx", "null all apparent-size bytes total dereference-args si human-readable inodes count-links dereference no-dereference separate-dirs summarize one-file-system help version"),
            values("Bdt", "block-size max-depth threshold exclude time-style"),
            glued("", "time"),
            reads("X", "exclude-from"),
            with(Unclear, OptionValue::Required, "", "files0-from"),
        ],
    ),
    ProgramSpec::new(
        "df",
        OperandSpec::List,
        &[
            flags("ahHiklPTv", "all human-readable si inodes local no-sync portability sync total print-type help version"),
            values("Btx", "block-size type exclude-type"),
            glued("", "output"),
        ],
    ),
    ProgramSpec::new("which", OperandSpec::Text, &[flags("as", "all skip-dot skip-tilde show-dot show-tilde tty-only version help")]),
    ProgramSpec::new("date", OperandSpec::Text, &[flags("Ru", "rfc-email rfc-822 rfc-2822 utc universal debug resolution help version"), values("d", "date rfc-3339"), glued("I", "iso-8601"), reads("fr", "file reference"), with(Unclear, OptionValue::Required, "s", "set")]),
    ProgramSpec::new("id", OperandSpec::Text, &[flags("aGgnruzZ", "context group groups name real user zero help version")]),
    ProgramSpec::new("whoami", OperandSpec::Text, &[flags("", "help version")]),
    ProgramSpec::new("uname", OperandSpec::Text, &[flags("amnoprsiv", "all kernel-name nodename kernel-release kernel-version machine processor hardware-platform operating-system help version")]),
    ProgramSpec::new("printenv", OperandSpec::Text, &[flags("0", "null help version")]),
    ProgramSpec::new("nproc", OperandSpec::Text, &[flags("", "all help version"), values("", "ignore")]),
    ProgramSpec::new("sleep", OperandSpec::Text, &[flags("", "help version")]),
    ProgramSpec::new("expr", OperandSpec::Text, &[]).dangers_only(),
    ProgramSpec::new("od", OperandSpec::Read, &[flags("abcdfhiloxv", "output-duplicates traditional help version"), values("AjNtS", "address-radix skip-bytes read-bytes format endian strings"), glued("w", "width")]).any_file_name(),
    ProgramSpec::new("hexdump", OperandSpec::Read, &[flags("bcCdoxvX", "canonical no-squeezing help version"), values("eLns", "format length skip color"), reads("f", "")]),
    ProgramSpec::new("xxd", OperandSpec::ReadOne, &[flags("abCdeEhipPrRuv", ""), values("cglnos", "")]),
    ProgramSpec::new("strings", OperandSpec::Read, &[flags("adfow", "all data print-file-name include-all-whitespace help version"), values("neUtsT", "bytes encoding unicode radix output-separator target")]).any_file_name().numbers(),
    ProgramSpec::new("base64", OperandSpec::Read, ENCODERS).any_file_name(),
    ProgramSpec::new("base32", OperandSpec::Read, ENCODERS).any_file_name(),
    ProgramSpec::new("basenc", OperandSpec::Read, ENCODERS).any_file_name(),
    ProgramSpec::new("md5sum", OperandSpec::Read, SUMS),
    ProgramSpec::new("sha1sum", OperandSpec::Read, SUMS),
    ProgramSpec::new("sha224sum", OperandSpec::Read, SUMS),
    ProgramSpec::new("sha256sum", OperandSpec::Read, SUMS),
    ProgramSpec::new("sha384sum", OperandSpec::Read, SUMS),
    ProgramSpec::new("sha512sum", OperandSpec::Read, SUMS),
    ProgramSpec::new("b2sum", OperandSpec::Read, SUMS),
    ProgramSpec::new("cksum", OperandSpec::Read, SUMS),
    ProgramSpec::new(
        "jq",
        OperandSpec::PatternThenRead,
        &[
            flags("CMSRaceijnrs", "color-output monochrome-output sort-keys raw-input ascii-output compact-output exit-status null-input raw-output join-output raw-output0 slurp seq stream stream-errors tab unbuffered help version"),
            values("", "indent"),
            with(PatternFile, OptionValue::Required, "f", "from-file"),
            unclear("", "arg argjson slurpfile rawfile args jsonargs"),
            with(Enter, OptionValue::Required, "L", "library-path"),
        ],
    ),
    ProgramSpec::new(
        "tree",
        OperandSpec::List,
        &[flags("adfilxRNqQpsuhgDFvtcUrSAnCXJ", "gitignore gitfile matchdirs noreport inodes device dirsfirst filesfirst nolinks prune si du ignore-case metafirst help version"), values("LPIHT", "charset filelimit timefmt sort"), writes("o", "")],
    ),
    ProgramSpec::new(
        "sed",
        OperandSpec::SedThenRead,
        &[
            flags("nErsuz", "quiet silent regexp-extended separate unbuffered null-data zero-terminated posix debug follow-symlinks sandbox help version binary b"),
            values("l", "line-length"),
            with(Sed, OptionValue::Required, "e", "expression"),
            with(Execute, OptionValue::Required, "f", "file"),
            with(WriteOperands, OptionValue::Glued, "i", "in-place"),
        ],
    ),
    ProgramSpec::new(
        "less",
        OperandSpec::Read,
        &[flags("aAcCeEfFgGiIJmMnNqQrRsSUwWX", "RAW-CONTROL-CHARS chop-long-lines quit-if-one-screen no-init LINE-NUMBERS help version"), values("bhjxyz", "")],
    )
    .numbers(),
    ProgramSpec::new("more", OperandSpec::Read, &[flags("dflcpsueV", "silent logical no-pause print-over clean-print squeeze plain help version"), values("n", "lines")]).numbers(),
    ProgramSpec::new(
        "man",
        OperandSpec::Text,
        &[executes("PH", "pager html"), with(Execute, OptionValue::Glued, "", "gxditview"), reads("C", "config-file"), with(Unclear, OptionValue::None, "lK", "local-file global-apropos"), values("MSLmpRErs", "manpath sections locale systems preprocessor recode encoding prompt")],
    )
    .dangers_only(),
    ProgramSpec::new(
        "tar",
        OperandSpec::Unclear,
        &[
            flags("tvzjJZaghkpRSwW", "list verbose gzip bzip2 xz lzip lzma lzop zstd compress uncompress auto-compress no-auto-compress full-time numeric-owner totals block-number show-defaults show-omitted-dirs utc wildcards no-wildcards anchored no-anchored ignore-case no-ignore-case help version usage"),
            values("bLHV", "blocking-factor tape-length format label exclude newer after-date newer-mtime strip-components transform xform quoting-style warning"),
            glued("", "occurrence"),
            reads("fX", "file exclude-from"),
            with(Unclear, OptionValue::Required, "T", "files-from"),
            with(Enter, OptionValue::Required, "C", "directory"),
            with(Write, OptionValue::None, "xcruA", "extract get create append update catenate concatenate"),
            with(Delete, OptionValue::None, "", "delete remove-files recursive-unlink unlink-first"),
            executes("IF", "use-compress-program to-command checkpoint-action rsh-command rmt-command info-script new-volume-script"),
            unclear("PKNn", "absolute-names force-local"),
        ],
    )
    .risk(Risk::Medium),
    ProgramSpec::new("egrep", OperandSpec::PatternThenRead, &[flags("ivnrRlLcoqwxhHsaE", "ignore-case invert-match line-number recursive files-with-matches count only-matching quiet word-regexp"), values("mABC", "max-count include exclude exclude-dir after-context before-context context"), with(Pattern, OptionValue::Required, "e", "regexp"), with(PatternFile, OptionValue::Required, "f", "file"), glued("", "color colour")]).any_file_name(),
    ProgramSpec::new("fgrep", OperandSpec::PatternThenRead, &[flags("ivnrRlLcoqwxhHsaF", "ignore-case invert-match line-number recursive files-with-matches count only-matching quiet word-regexp"), values("mABC", "max-count include exclude exclude-dir after-context before-context context"), with(Pattern, OptionValue::Required, "e", "regexp"), with(PatternFile, OptionValue::Required, "f", "file"), glued("", "color colour")]).any_file_name(),
];
