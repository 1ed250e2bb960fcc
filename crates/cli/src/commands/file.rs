//! `ringfence file`: the in-process file tools, through the pipeline.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_policy::StartupFlags;
use ringfence_runtime::{CallEnd, CommandIo, EffectOutput, OutputTarget, StdinSource};
use ringfence_types::{ByteString, Call, FileCall};
use sha2::{Digest as _, Sha256};

use crate::approval::ControllingTerminal;
use crate::args::{FAILED, FileCommand, PolicyArgs};
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::leaks;
use crate::policy_resolution::{self, PolicyResolutionError};

pub(crate) fn run(command: FileCommand) -> ExitCode {
    let bytes = |path: &Path| ByteString::from(path);
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

fn perform(place: &PolicyArgs, call: FileCall, content: &[u8]) -> ExitCode {
    let environment = Environment::read();
    let runtime = match run::runtime(&environment, ApproverPresence::Unattended) {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let governed =
        match policy_resolution::resolve(place, &environment, runtime.setup(), StartupFlags::default()) {
            Ok(governed) => governed,
            Err(PolicyResolutionError::Failed(code)) => return code,
            Err(PolicyResolutionError::Refused(refusal)) => {
                return match runtime.refuse(&refusal) {
                    Ok(()) => error::refused(&refusal),
                    Err(error) => error::failed(&error, None),
                };
            }
        };
    let mut session = match runtime.session(governed.session_spec()) {
        Ok(Ok(session)) => session,
        Ok(Err(refusal)) => return error::refused(&refusal),
        Err(error) => return error::failed(&error, error.hint().as_deref()),
    };
    session.set_approver(ControllingTerminal::new(&environment));
    let io = CommandIo {
        stdin: StdinSource::Bytes(content),
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    let settled = session.last_call(Call::File(call), io);
    run::warn_unrecorded(&settled);
    run::tell_held(&settled);
    if !matches!(settled.ended, CallEnd::Refused(_)) {
        leaks::tell(&settled.leaks);
    }
    match settled.ended {
        CallEnd::Touched(touched) => show(touched),
        CallEnd::Refused(refusal) => error::refused(&refusal),
        CallEnd::Failed { what, hint } => error::failed_text(&what, hint.as_deref()),
        CallEnd::Executed(_) => ExitCode::from(FAILED),
    }
}

fn show(touched: EffectOutput) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let written = match touched {
        EffectOutput::Read(content) => out.write_all(&content),
        EffectOutput::Listed(entries) => entries.iter().try_for_each(|entry| {
            out.write_all(entry.name.as_os_str().as_bytes())?;
            out.write_all(OsStr::new("\n").as_bytes())
        }),
        EffectOutput::Looked(_)
        | EffectOutput::Written
        | EffectOutput::Linked
        | EffectOutput::Moved
        | EffectOutput::Removed
        | EffectOutput::Applied
        | EffectOutput::Landed(_)
        | EffectOutput::Fetched(_) => Ok(()),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error::failed_text(&format!("cannot write to standard output: {error}"), None),
    }
}
