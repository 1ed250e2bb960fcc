//! The project's own tools. `cargo xtask` without a word prints what there is.

mod agents;
mod bench;
mod checklists;
mod command;
mod deny;
mod hung;
mod layers;
mod lexer;
mod names;
mod packages;
mod passes;
mod requirements;
mod sources;
mod stage;
mod steps;
mod testing;
mod tree;
mod unsteady;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A developer tool reports and stops; nobody matches on its errors.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "\
cargo xtask test [--package NAME]…       every check and every test, as root and as an ordinary user
                 [--as root|user]        one of the two passes
                 [--only TEXT]           only tests with TEXT in their names, without checks, with the development build
cargo xtask layers                       crate layers, unsafe, file sizes, forbidden words
cargo xtask names [--all | --lower]      one name for one thing: types, modules, parameters, comments, glossary
cargo xtask deny                         licences, banned crates and sources of dependencies, by deny.toml
cargo xtask requirements                 requirements, checklists and rules in docs: every id, and only tests that exist
cargo xtask agents                       the real agents for the tests, in the target directory
cargo xtask bench [--quick] [--only GROUP]…   start-up, library, inside; see bench/README.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let root = repository();
    let (word, rest) = arguments.split_first().ok_or(USAGE)?;
    match word.as_str() {
        "test" => testing::run(&root, rest),
        "layers" => layers::run(&root),
        "names" => names::run(&root, rest),
        "deny" => deny::run(&root).map(|note| println!("{note}")),
        "requirements" => requirements::run(&root),
        "agents" => agents::ensure(&root).map(|bin| println!("{}", bin.display())),
        "bench" => bench::run(&root, rest),
        other => Err(format!("unknown task `{other}`\n{USAGE}").into()),
    }
}

fn repository() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Prints every violation and fails if there is one.
fn report_violations(what: &str, violations: &[String]) -> Result<()> {
    if violations.is_empty() {
        println!("{what}: ok");
        return Ok(());
    }
    for violation in violations {
        println!("{what}: {violation}");
    }
    Err(format!("{what}: {} violation(s)", violations.len()).into())
}
