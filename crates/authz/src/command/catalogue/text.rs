//! Programs that read and print. They are not on the list; a policy file may put them on it, and then these options
//! still ask.

use ringfence_types::Risk;

use crate::command::options::Effect::{
    Delete, Enter, Execute, Pattern, PatternFile, Sed, Unclear, Write, WriteOperands,
};
use crate::command::options::{
    Group, Operands, Program, Value, executes, flags, glued, reads, unclear, values, with, writes,
};

const SUMS: &[Group] = &[
    flags(
        "btzw",
        "binary check-only tag text zero ignore-missing quiet status strict warn base64 raw debug untagged help version",
    ),
    values("la", "length algorithm"),
    // It opens whatever the file lists.
    with(Unclear, Value::None, "c", "check"),
];

const ENCODERS: &[Group] =
    &[flags("di", "decode ignore-garbage base64 base64url base32 base16 help version"), values("w", "wrap")];

pub(super) static PROGRAMS: &[Program] = &[
    Program::new(
        "sort",
        Operands::Read,
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
            with(Unclear, Value::Required, "", "files0-from"),
            executes("", "compress-program"),
            writes("oT", "output temporary-directory"),
        ],
    ),
    Program::new(
        "uniq",
        Operands::ReadOne,
        &[
            flags("cdDiuz", "count repeated ignore-case unique zero-terminated help version"),
            glued("", "all-repeated group"),
            values("fsw", "skip-fields skip-chars check-chars"),
        ],
    ),
    Program::new(
        "cut",
        Operands::Read,
        &[
            flags("nsz", "complement only-delimited zero-terminated help version"),
            values("bcdf", "bytes characters delimiter fields output-delimiter"),
        ],
    )
    .any_file_name(),
    Program::new(
        "tr",
        Operands::Text,
        &[flags("cCdst", "complement delete squeeze-repeats truncate-set1 help version")],
    ),
    Program::new(
        "diff",
        Operands::Read,
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
            with(Execute, Value::None, "l", "paginate"),
        ],
    )
    .numbers(),
    Program::new("cmp", Operands::Read, &[flags("bls", "print-bytes verbose quiet silent help version"), values("in", "ignore-initial bytes")]),
    Program::new("comm", Operands::Read, &[flags("123z", "check-order nocheck-order total zero-terminated help version"), values("", "output-delimiter")])
        .any_file_name(),
    Program::new("nl", Operands::Read, &[flags("p", "no-renumber help version"), values("bdfhilnsvw", "body-numbering section-delimiter footer-numbering header-numbering line-increment join-blank-lines number-format number-separator starting-line-number number-width")])
        .any_file_name(),
    Program::new("paste", Operands::Read, &[flags("sz", "serial zero-terminated help version"), values("d", "delimiters")])
        .any_file_name(),
    Program::new("join", Operands::Read, &[flags("iz", "ignore-case check-order nocheck-order header zero-terminated help version"), values("12aejotv", "")])
        .any_file_name(),
    Program::new("fold", Operands::Read, &[flags("bcs", "bytes characters spaces help version"), values("w", "width")])
        .any_file_name()
        .numbers(),
    Program::new("fmt", Operands::Read, &[flags("cstu", "crown-margin split-only tagged-paragraph uniform-spacing help version"), values("wpg", "width prefix goal")])
        .any_file_name()
        .numbers(),
    Program::new("expand", Operands::Read, &[flags("i", "initial help version"), values("t", "tabs")]).any_file_name(),
    Program::new("unexpand", Operands::Read, &[flags("a", "all first-only help version"), values("t", "tabs")])
        .any_file_name(),
    Program::new("tac", Operands::Read, &[flags("br", "before regex help version"), values("s", "separator")])
        .any_file_name(),
    Program::new("rev", Operands::Read, &[flags("0hV", "zero help version")]).any_file_name(),
    Program::new("column", Operands::Read, &[flags("tJexLndhV", "table json fillrows table-noheadings table-maxout keep-empty-lines help version"), values("scoNRHTWEOrpilC", "separator output-width output-separator table-columns table-right table-hide table-truncate table-wrap table-noextreme table-order tree tree-parent tree-id table-columns-limit table-column table-name")])
        .any_file_name(),
    Program::new("seq", Operands::Text, &[flags("w", "equal-width help version"), values("fs", "format separator")]).numbers(),
    Program::new("basename", Operands::Text, &[flags("az", "multiple zero help version"), values("s", "suffix")]),
    Program::new("dirname", Operands::Text, &[flags("z", "zero help version")]),
    Program::new("realpath", Operands::List, &[flags("eEmLPqsz", "canonicalize canonicalize-existing canonicalize-missing logical physical quiet strip no-symlinks zero help version"), values("", "relative-to relative-base")]),
    Program::new("readlink", Operands::List, &[flags("femnqsvz", "canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero help version")]),
    Program::new("stat", Operands::List, &[flags("Lft", "dereference file-system terse help version"), values("c", "format printf cached")]),
    Program::new(
        "file",
        Operands::Read,
        &[
            flags("bdEhiIkLlnNprsv0", "brief mime mime-type mime-encoding extension no-dereference dereference keep-going list no-buffer no-pad preserve-date raw special-files version help apple print0"),
            values("eFP", "exclude exclude-quiet separator parameter"),
            reads("mM", "magic-file"),
            with(Unclear, Value::Required, "f", "files-from"),
            with(Execute, Value::None, "zZ", "uncompress uncompress-noreport"),
            with(Write, Value::None, "C", "compile"),
            unclear("S", "no-sandbox"),
        ],
    ),
    Program::new(
        "du",
        Operands::List,
        &[
            flags("0abcDHhklLmPSsx", "null all apparent-size bytes total dereference-args si human-readable inodes count-links dereference no-dereference separate-dirs summarize one-file-system help version"),
            values("Bdt", "block-size max-depth threshold exclude time-style"),
            glued("", "time"),
            reads("X", "exclude-from"),
            with(Unclear, Value::Required, "", "files0-from"),
        ],
    ),
    Program::new(
        "df",
        Operands::List,
        &[
            flags("ahHiklPTv", "all human-readable si inodes local no-sync portability sync total print-type help version"),
            values("Btx", "block-size type exclude-type"),
            glued("", "output"),
        ],
    ),
    Program::new("which", Operands::Text, &[flags("as", "all skip-dot skip-tilde show-dot show-tilde tty-only version help")]),
    Program::new("date", Operands::Text, &[flags("Ru", "rfc-email rfc-822 rfc-2822 utc universal debug resolution help version"), values("d", "date rfc-3339"), glued("I", "iso-8601"), reads("fr", "file reference"), with(Unclear, Value::Required, "s", "set")]),
    Program::new("id", Operands::Text, &[flags("aGgnruzZ", "context group groups name real user zero help version")]),
    Program::new("whoami", Operands::Text, &[flags("", "help version")]),
    Program::new("uname", Operands::Text, &[flags("amnoprsiv", "all kernel-name nodename kernel-release kernel-version machine processor hardware-platform operating-system help version")]),
    Program::new("printenv", Operands::Text, &[flags("0", "null help version")]),
    Program::new("nproc", Operands::Text, &[flags("", "all help version"), values("", "ignore")]),
    Program::new("sleep", Operands::Text, &[flags("", "help version")]),
    Program::new("expr", Operands::Text, &[]).dangers_only(),
    Program::new("od", Operands::Read, &[flags("abcdfhiloxv", "output-duplicates traditional help version"), values("AjNtS", "address-radix skip-bytes read-bytes format endian strings"), glued("w", "width")]).any_file_name(),
    Program::new("hexdump", Operands::Read, &[flags("bcCdoxvX", "canonical no-squeezing help version"), values("eLns", "format length skip color"), reads("f", "")]),
    Program::new("xxd", Operands::ReadOne, &[flags("abCdeEhipPrRuv", ""), values("cglnos", "")]),
    Program::new("strings", Operands::Read, &[flags("adfow", "all data print-file-name include-all-whitespace help version"), values("neUtsT", "bytes encoding unicode radix output-separator target")]).any_file_name().numbers(),
    Program::new("base64", Operands::Read, ENCODERS).any_file_name(),
    Program::new("base32", Operands::Read, ENCODERS).any_file_name(),
    Program::new("basenc", Operands::Read, ENCODERS).any_file_name(),
    Program::new("md5sum", Operands::Read, SUMS),
    Program::new("sha1sum", Operands::Read, SUMS),
    Program::new("sha224sum", Operands::Read, SUMS),
    Program::new("sha256sum", Operands::Read, SUMS),
    Program::new("sha384sum", Operands::Read, SUMS),
    Program::new("sha512sum", Operands::Read, SUMS),
    Program::new("b2sum", Operands::Read, SUMS),
    Program::new("cksum", Operands::Read, SUMS),
    Program::new(
        "jq",
        Operands::PatternThenRead,
        &[
            flags("CMSRaceijnrs", "color-output monochrome-output sort-keys raw-input ascii-output compact-output exit-status null-input raw-output join-output raw-output0 slurp seq stream stream-errors tab unbuffered help version"),
            values("", "indent"),
            with(PatternFile, Value::Required, "f", "from-file"),
            unclear("", "arg argjson slurpfile rawfile args jsonargs"),
            with(Enter, Value::Required, "L", "library-path"),
        ],
    ),
    Program::new(
        "tree",
        Operands::List,
        &[flags("adfilxRNqQpsuhgDFvtcUrSAnCXJ", "gitignore gitfile matchdirs noreport inodes device dirsfirst filesfirst nolinks prune si du ignore-case metafirst help version"), values("LPIHT", "charset filelimit timefmt sort"), writes("o", "")],
    ),
    Program::new(
        "sed",
        Operands::SedThenRead,
        &[
            flags("nErsuz", "quiet silent regexp-extended separate unbuffered null-data zero-terminated posix debug follow-symlinks sandbox help version binary b"),
            values("l", "line-length"),
            with(Sed, Value::Required, "e", "expression"),
            with(Execute, Value::Required, "f", "file"),
            with(WriteOperands, Value::Glued, "i", "in-place"),
        ],
    ),
    Program::new(
        "less",
        Operands::Read,
        &[flags("aAcCeEfFgGiIJmMnNqQrRsSUwWX", "RAW-CONTROL-CHARS chop-long-lines quit-if-one-screen no-init LINE-NUMBERS help version"), values("bhjxyz", "")],
    )
    .numbers(),
    Program::new("more", Operands::Read, &[flags("dflcpsueV", "silent logical no-pause print-over clean-print squeeze plain help version"), values("n", "lines")]).numbers(),
    Program::new(
        "man",
        Operands::Text,
        &[executes("PH", "pager html"), with(Execute, Value::Glued, "", "gxditview"), reads("C", "config-file"), with(Unclear, Value::None, "lK", "local-file global-apropos"), values("MSLmpRErs", "manpath sections locale systems preprocessor recode encoding prompt")],
    )
    .dangers_only(),
    Program::new(
        "tar",
        Operands::Unclear,
        &[
            flags("tvzjJZaghkpRSwW", "list verbose gzip bzip2 xz lzip lzma lzop zstd compress uncompress auto-compress no-auto-compress full-time numeric-owner totals block-number show-defaults show-omitted-dirs utc wildcards no-wildcards anchored no-anchored ignore-case no-ignore-case help version usage"),
            values("bLHV", "blocking-factor tape-length format label exclude newer after-date newer-mtime strip-components transform xform quoting-style warning"),
            glued("", "occurrence"),
            reads("fX", "file exclude-from"),
            with(Unclear, Value::Required, "T", "files-from"),
            with(Enter, Value::Required, "C", "directory"),
            with(Write, Value::None, "xcruA", "extract get create append update catenate concatenate"),
            with(Delete, Value::None, "", "delete remove-files recursive-unlink unlink-first"),
            executes("IF", "use-compress-program to-command checkpoint-action rsh-command rmt-command info-script new-volume-script"),
            unclear("PKNn", "absolute-names force-local"),
        ],
    )
    .risk(Risk::Medium),
    Program::new("egrep", Operands::PatternThenRead, &[flags("ivnrRlLcoqwxhHsaE", "ignore-case invert-match line-number recursive files-with-matches count only-matching quiet word-regexp"), values("mABC", "max-count include exclude exclude-dir after-context before-context context"), with(Pattern, Value::Required, "e", "regexp"), with(PatternFile, Value::Required, "f", "file"), glued("", "color colour")]).any_file_name(),
    Program::new("fgrep", Operands::PatternThenRead, &[flags("ivnrRlLcoqwxhHsaF", "ignore-case invert-match line-number recursive files-with-matches count only-matching quiet word-regexp"), values("mABC", "max-count include exclude exclude-dir after-context before-context context"), with(Pattern, Value::Required, "e", "regexp"), with(PatternFile, Value::Required, "f", "file"), glued("", "color colour")]).any_file_name(),
];
