use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

use super::arena::Arena;
use super::attempt::AttemptBody;
use super::evidence::AttemptLog;
use super::suite;
use super::world::{VICTIM, VICTIM_VARIABLE};

/// The argument after `__attempt` that makes a program print its user.
pub(super) const WHO: &str = "who";

/// Runs one attempt for `ringfence __attempt …`, fenced or not. The process must have only one thread.
pub fn attempt_main(args: &[OsString], out: &mut dyn Write) -> u8 {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let done = match words.as_slice() {
        [VICTIM, ..] => be_victim(out),
        [WHO] => who(out),
        [id, arena] => attack(id, arena, out),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    if done.is_ok() { 0 } else { 2 }
}

fn attack(id: &str, arena: &str, out: &mut dyn Write) -> io::Result<()> {
    let arena: Arena = serde_json::from_str(arena)?;
    let attempt = suite::attempts().find(|attempt| attempt.id == id).ok_or(io::ErrorKind::NotFound)?;
    let AttemptBody::Code(body) = attempt.body else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut log = AttemptLog::new(out);
    log.started();
    body(&arena, &mut log);
    Ok(())
}

fn who(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "uid={}", rustix::process::geteuid().as_raw())
}

/// Holds a secret in memory and an open file until its standard input closes.
fn be_victim(out: &mut dyn Write) -> io::Result<()> {
    let environ = fs::read("/proc/self/environ")?;
    let prefix = format!("{VICTIM_VARIABLE}=");
    let secret = environ
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(prefix.as_bytes()))
        .ok_or(io::ErrorKind::NotFound)?;
    // KERNEL: where Yama restricts tracing to descendants, a process may allow every tracer.
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    let file = File::open("secret.txt")?;
    writeln!(out, "{} {} {}", secret.as_ptr().addr(), secret.len(), file.as_raw_fd())?;
    out.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
