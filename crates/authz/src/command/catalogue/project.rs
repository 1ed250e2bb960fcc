//! Programs that run what the project says. A policy that lists them trusts the project's own files, which are asked about
//! when they are written; these options make them run something else.

use ringfence_types::{Risk, RuleFamily};

use crate::command::arg::{Arg, shorten};
use crate::command::builtin_verdict::BuiltinVerdict;
use crate::command::rules::CommandLine;

/// Names of programs, and options: as a word of its own, with `=` and a value, or, of one letter, with the value glued to it. Of one character alone: whatever begins with it.
const STEERED: &[(&str, &str)] = &[
    ("go", "-exec --exec -toolexec --toolexec -vettool --vettool -overlay --overlay -modfile --modfile"),
    ("cargo", "--config --manifest-path -Z -C"),
    (
        "npm pnpm yarn bun",
        "--script-shell --node-options --shell --prefix --dir --cwd --userconfig --globalconfig --use-node-version -C",
    ),
    (
        "just",
        "--shell --shell-arg --shell-command --justfile --working-directory --command --set --chooser --dotenv-path -f -d -c",
    ),
    ("pytest", "--override-ini --rootdir --confcutdir --pyargs -c -p -o"),
    ("tox nox", "--conf --override --noxfile --root -c -x -f"),
    (
        "jest vitest mocha",
        "--config --require --import --setupFiles --globalSetup --runner --testRunner --reporter -c -r",
    ),
    ("eslint prettier", "--config --plugin --rulesdir --resolve-plugins-relative-to --parser --format -c -f"),
    ("mvn gradle gradlew", "--file --init-script --build-file --settings --project-dir -f -I -b -s -p -D"),
    ("cmake", "--toolchain -P -C -D -E"),
    ("fd fdfind", "-x -X --exec --exec-batch"),
    ("gcc g++ cc c++ clang clang++", "-wrapper -fplugin -specs --specs -B -load -Xclang"),
    ("rustc", "--codegen --config -C -Z"),
    ("bat batcat", "--pager"),
    // `+!command` at its start, and `+` with anything else that a person could type into it.
    ("less", "+"),
    // Commands that begin with a dot take any beginning that is clear.
    ("sqlite3", "-cmd --cmd -init --init -A .a .c .e .i .l .o .r .s"),
];

/// Variables of `make` end up in the text that a shell runs.
const MAKE: &[&[u8]] = &[b"make", b"gmake", b"bmake"];

/// The opinion about an argument that makes a program run something else than the project's own files say.
pub(in crate::command) fn steered(line: &CommandLine<'_>) -> Option<BuiltinVerdict> {
    let name = line.identity.name;
    if MAKE.contains(&name) {
        return line.args.iter().filter_map(|arg| arg.text()).find(|text| sets(text)).map(|text| {
            let reason = format!("`{}` becomes part of what a shell runs", shorten(text));
            BuiltinVerdict::miss(RuleFamily::Option.member("make"), reason, Risk::High).exact()
        });
    }
    let is = |names: &str| names.split(' ').any(|known| known.as_bytes() == name);
    let (_, options) = STEERED.iter().find(|(names, _)| is(names))?;
    let given = |option: &&str| line.args.iter().any(|arg| gives(*arg, option.as_bytes()));
    let option = options.split(' ').find(given)?;
    let rule = RuleFamily::Option.member(shorten(name));
    let reason = format!("option `{option}` runs a program, or something else than the project's own files");
    Some(BuiltinVerdict::miss(rule, reason, Risk::High).for_option(option.as_bytes()))
}

fn gives(arg: Arg<'_>, option: &[u8]) -> bool {
    let Some(rest) = arg.known_start().strip_prefix(option) else { return false };
    rest.is_empty() || rest.starts_with(b"=") || option.len() <= 2
}

/// `CC=x`, `SHELL:=x`, `X!=touch y`; not `V=1`.
fn sets(text: &[u8]) -> bool {
    let Some(at) = text.iter().position(|byte| *byte == b'=') else { return false };
    let (name, value) = (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
    let plain = value.iter().all(u8::is_ascii_digit) || matches!(value, b"yes" | b"no" | b"true" | b"false");
    !text.starts_with(b"-") && (!plain || name.ends_with(b"!"))
}
