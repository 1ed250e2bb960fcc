//! `ringfence file`: the in-process file tools, through the pipeline.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::Flags;
use ringfence_runtime::{Ended, Io, Source, Target, Touched};
use ringfence_types::{Bytes, Call, FileCall};
use sha2::{Digest as _, Sha256};

use crate::approval::Terminal;
use crate::args::{FAILED, FileCommand, Place};
use crate::asked::{self, Ungoverned};
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::leaks;

pub(crate) fn run(command: FileCommand) -> ExitCode {
    let bytes = |path: &Path| Bytes::from(path);
    match command {
        FileCommand::Read { place, path } => perform(&place, FileCall::Read { path: bytes(&path) }, &[]),
        FileCommand::List { place, path } => perform(&place, FileCall::List { path: bytes(&path) }, &[]),
        FileCommand::Symlink { place, target, path } => {
            perform(&place, FileCall::Symlink { path: bytes(&path), target: bytes(&target) }, &[])
        }
        FileCommand::Write { place, path } => {
            let mut content = Vec::new();
            if let Err(error) = std::io::stdin().read_to_end(&mut content) {
                return error::failed_text(&format!("cannot read standard input: {error}"), None);
            }
            let sha256 = ringfence_types::hex(Sha256::digest(&content));
            let call = FileCall::Write { path: bytes(&path), sha256, bytes: content.len() as u64 };
            perform(&place, call, &content)
        }
    }
}

fn perform(place: &Place, call: FileCall, content: &[u8]) -> ExitCode {
    let environment = Environment::read();
    let runtime = match run::runtime(&environment, Attendance::Unattended) {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let governed = match asked::governed(place, &environment, runtime.setup(), Flags::default()) {
        Ok(governed) => governed,
        Err(Ungoverned::Failed(code)) => return code,
        Err(Ungoverned::Refused(refusal)) => {
            return match runtime.refuse(&refusal) {
                Ok(()) => error::refused(&refusal),
                Err(error) => error::failed(&error, None),
            };
        }
    };
    let mut session = match runtime.session(governed.asked()) {
        Ok(Ok(session)) => session,
        Ok(Err(refusal)) => return error::refused(&refusal),
        Err(error) => return error::failed(&error, error.hint().as_deref()),
    };
    session.set_approver(Terminal::new(&environment));
    let io = Io {
        stdin: Source::Bytes(content),
        stdout: Target::Discard,
        stderr: Target::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    let settled = session.last_call(Call::File(call), io);
    run::warn_unrecorded(&settled);
    run::tell_held(&settled);
    if !matches!(settled.ended, Ended::Refused(_)) {
        leaks::tell(&settled.leaks);
    }
    match settled.ended {
        Ended::Touched(touched) => show(touched),
        Ended::Refused(refusal) => error::refused(&refusal),
        Ended::Failed { what, hint } => error::failed_text(&what, hint.as_deref()),
        Ended::Executed(_) => ExitCode::from(FAILED),
    }
}

fn show(touched: Touched) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let written = match touched {
        Touched::Read(content) => out.write_all(&content),
        Touched::Listed(entries) => entries.iter().try_for_each(|entry| {
            out.write_all(entry.name.as_os_str().as_bytes())?;
            out.write_all(OsStr::new("\n").as_bytes())
        }),
        Touched::Looked(_)
        | Touched::Written
        | Touched::Linked
        | Touched::Moved
        | Touched::Removed
        | Touched::Applied
        | Touched::Fetched(_) => Ok(()),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error::failed_text(&format!("cannot write to standard output: {error}"), None),
    }
}
