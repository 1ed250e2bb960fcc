//! Programs that write: whoever lists them lets them write where the roots allow it. Options that do more still ask.

use crate::command::options::Effect::{Delete, Enter, Execute, Unclear, Write};
use crate::command::options::{
    Operands, Program, Value, executes, flags, glued, reads, unclear, values, with, writes,
};

pub(super) static PROGRAMS: &[Program] = &[
    Program::new("cp", Operands::ReadThenWrite, &[writes("t", "target-directory")]).dangers_only(),
    Program::new("mv", Operands::Write, &[writes("t", "target-directory")]).dangers_only(),
    Program::new("ln", Operands::ReadThenWrite, &[writes("t", "target-directory")]).dangers_only(),
    Program::new(
        "install",
        Operands::ReadThenWrite,
        &[
            writes("t", "target-directory"),
            executes("", "strip-program"),
            with(Execute, Value::None, "s", "strip"),
        ],
    )
    .dangers_only(),
    Program::new(
        "mkdir",
        Operands::Write,
        &[flags("pvZ", "parents verbose help version"), values("m", "mode"), glued("", "context")],
    ),
    Program::new("mkfifo", Operands::Write, &[values("m", "mode")]).dangers_only(),
    Program::new("mktemp", Operands::Write, &[]).dangers_only(),
    Program::new(
        "touch",
        Operands::Write,
        &[
            flags("acfhm", "no-create no-dereference help version"),
            values("dt", "date time"),
            reads("r", "reference"),
        ],
    ),
    Program::new(
        "tee",
        Operands::Write,
        &[flags("aip", "append ignore-interrupts help version"), glued("", "output-error")],
    ),
    Program::new(
        "truncate",
        Operands::Write,
        &[flags("co", "no-create io-blocks help version"), values("s", "size"), reads("r", "reference")],
    ),
    Program::new("dd", Operands::Pairs, &[flags("", "help version")]),
    Program::new(
        "split",
        Operands::Unclear,
        &[
            executes("", "filter"),
            flags("dexuz", "verbose"),
            values("abClnt", "suffix-length bytes line-bytes lines number separator additional-suffix"),
        ],
    ),
    Program::new("chmod", Operands::Write, &[with(Unclear, Value::None, "R", "recursive")]).dangers_only(),
    Program::new("chown", Operands::Write, &[with(Unclear, Value::None, "R", "recursive")]).dangers_only(),
    Program::new("chgrp", Operands::Write, &[with(Unclear, Value::None, "R", "recursive")]).dangers_only(),
    Program::new(
        "patch",
        Operands::Write,
        &[
            reads("i", "input"),
            writes("o", "output"),
            with(Enter, Value::Required, "d", "directory"),
            writes("r", "reject-file"),
            unclear("e", "ed"),
        ],
    )
    .dangers_only(),
    Program::new("gzip", Operands::Write, &[]).dangers_only(),
    Program::new(
        "zip",
        Operands::Write,
        &[
            executes("", "unzip-command"),
            with(Execute, Value::None, "T", "test"),
            with(Delete, Value::None, "md", "move delete"),
        ],
    )
    .dangers_only(),
    Program::new("unzip", Operands::Read, &[with(Enter, Value::Required, "d", "")]).dangers_only(),
    // What a Makefile says is the project's; these make it say something else.
    Program::new(
        "make",
        Operands::Plain,
        &[
            executes("", "eval"),
            with(Execute, Value::Required, "fI", "file makefile include-dir"),
            with(Enter, Value::Required, "C", "directory"),
            with(Write, Value::None, "t", "touch"),
        ],
    )
    .dangers_only(),
];
