//! Programs that write: a policy that lists them lets them write where the roots allow it. Options that do more still ask.

use crate::command::options::OptionEffect::{Delete, Enter, Execute, Unclear, Write};
use crate::command::options::{
    OperandSpec, OptionGroup, OptionValue, ProgramSpec, executes, flags, glued, reads, unclear, values, with,
    writes,
};

const TARGET: OptionGroup = writes("t", "target-directory");
// What was there before gets a name of the caller's choice: `Make` becomes `Makefile` with `--suffix=file`.
const SUFFIX: OptionGroup = with(Unclear, OptionValue::Required, "S", "suffix");
const BACKUP: OptionGroup = with(Unclear, OptionValue::Glued, "b", "backup");
const PLACES: [OptionGroup; 3] = [TARGET, SUFFIX, BACKUP];

pub(super) static PROGRAMS: &[ProgramSpec] = &[
    ProgramSpec::new("cp", OperandSpec::ReadThenWrite, &PLACES).dangers_only(),
    ProgramSpec::new("mv", OperandSpec::Write, &PLACES).dangers_only(),
    ProgramSpec::new("ln", OperandSpec::ReadThenWrite, &PLACES).dangers_only(),
    ProgramSpec::new(
        "install",
        OperandSpec::ReadThenWrite,
        &[
            TARGET,
            SUFFIX,
            BACKUP,
            executes("", "strip-program"),
            with(Execute, OptionValue::None, "s", "strip"),
        ],
    )
    .dangers_only(),
    ProgramSpec::new(
        "mkdir",
        OperandSpec::Write,
        &[flags("pvZ", "parents verbose help version"), values("m", "mode"), glued("", "context")],
    ),
    ProgramSpec::new("mkfifo", OperandSpec::Write, &[values("m", "mode")]).dangers_only(),
    ProgramSpec::new("mktemp", OperandSpec::Write, &[]).dangers_only(),
    ProgramSpec::new(
        "touch",
        OperandSpec::Write,
        &[
            flags("acfhm", "no-create no-dereference help version"),
            values("dt", "date time"),
            reads("r", "reference"),
        ],
    ),
    ProgramSpec::new(
        "tee",
        OperandSpec::Write,
        &[flags("aip", "append ignore-interrupts help version"), glued("", "output-error")],
    ),
    ProgramSpec::new(
        "truncate",
        OperandSpec::Write,
        &[flags("co", "no-create io-blocks help version"), values("s", "size"), reads("r", "reference")],
    ),
    ProgramSpec::new("dd", OperandSpec::Pairs, &[flags("", "help version")]),
    ProgramSpec::new(
        "split",
        OperandSpec::Unclear,
        &[
            executes("", "filter"),
            flags("dexuz", "verbose"),
            values("abClnt", "suffix-length bytes line-bytes lines number separator additional-suffix"),
        ],
    ),
    ProgramSpec::new("chmod", OperandSpec::Write, &[with(Unclear, OptionValue::None, "R", "recursive")])
        .dangers_only(),
    ProgramSpec::new("chown", OperandSpec::Write, &[with(Unclear, OptionValue::None, "R", "recursive")])
        .dangers_only(),
    ProgramSpec::new("chgrp", OperandSpec::Write, &[with(Unclear, OptionValue::None, "R", "recursive")])
        .dangers_only(),
    ProgramSpec::new(
        "patch",
        OperandSpec::Write,
        &[
            reads("i", "input"),
            writes("o", "output"),
            with(Enter, OptionValue::Required, "d", "directory"),
            writes("r", "reject-file"),
            unclear("e", "ed"),
        ],
    )
    .dangers_only(),
    ProgramSpec::new("gzip", OperandSpec::Write, &[]).dangers_only(),
    ProgramSpec::new(
        "zip",
        OperandSpec::Write,
        &[
            executes("", "unzip-command"),
            with(Execute, OptionValue::None, "T", "test"),
            with(Delete, OptionValue::None, "md", "move delete"),
        ],
    )
    .dangers_only(),
    ProgramSpec::new("unzip", OperandSpec::Read, &[with(Enter, OptionValue::Required, "d", "")])
        .dangers_only(),
    // What a Makefile says is the project's; these make it say something else.
    ProgramSpec::new(
        "make",
        OperandSpec::Plain,
        &[
            executes("E", "eval"),
            with(Execute, OptionValue::Required, "fI", "file makefile include-dir"),
            with(Enter, OptionValue::Required, "C", "directory"),
            with(Write, OptionValue::None, "t", "touch"),
        ],
    )
    .dangers_only(),
];
