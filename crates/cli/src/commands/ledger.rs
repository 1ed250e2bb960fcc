//! `ringfence ledger`: reading and verifying the record.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_runtime::ledger::{
    ApprovalAnswer, Event, Head, Ledger, LedgerReader, Record, VerifyError, verify,
};
use ringfence_types::{Bytes, Call, Exit, FileCall};
use serde::Serialize;

use crate::args::LedgerCommand;
use crate::commands::run::print_json;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{note, say};

/// `verify` found the chain broken.
const BROKEN: u8 = 1;

pub(crate) fn run(command: &LedgerCommand) -> ExitCode {
    let path = match ledger_path() {
        Ok(path) => path,
        Err(error) => return error::failed(&error, None),
    };
    match command {
        LedgerCommand::Tail { count, json } => {
            read(&path, if *json { Form::Json } else { Form::Short }, |reader| {
                reader.tail(*count).map_err(|error| error::failed(&error, None))
            })
        }
        LedgerCommand::Show { id, json } => {
            let form = if *json { Form::Json } else { Form::Long };
            read(&path, form, |reader| reader.show(id).map_err(|error| error::failed(&error, None)))
        }
        LedgerCommand::Verify { head, file, json } => check(
            file.as_deref().unwrap_or(&path),
            head.as_deref(),
            if *json { Form::Json } else { Form::Short },
        ),
    }
}

fn ledger_path() -> Result<PathBuf, host::NoStateDir> {
    Ok(host::state_dir(&Environment::read())?.join("ledger.db"))
}

#[derive(Clone, Copy)]
enum Form {
    Short,
    Long,
    Json,
}

fn read(
    path: &Path,
    form: Form,
    get: impl FnOnce(&LedgerReader) -> Result<Vec<Record>, ExitCode>,
) -> ExitCode {
    let reader = match Ledger::open_read(path) {
        Ok(reader) => reader,
        Err(error) => return error::failed(&error, error.hint().as_deref()),
    };
    let records = match get(&reader) {
        Ok(records) => records,
        Err(code) => return code,
    };
    for record in &records {
        match form {
            Form::Json => print_json(record),
            Form::Short => say!("{}", line(record)),
            Form::Long => print_long(record),
        }
    }
    ExitCode::SUCCESS
}

fn print_long(record: &Record) {
    say!("{}", line(record));
    match serde_json::to_string_pretty(&record.event) {
        Ok(text) => say!("{text}\nhash {}\n", record.hash),
        Err(error) => note!("ringfence: cannot show record {}: {error}", record.seq),
    }
}

fn line(record: &Record) -> String {
    format!("{:>6}  {}  {}", record.seq, record.time, summary(&record.event))
}

fn summary(event: &Event) -> String {
    let kind = event.kind().word();
    let about = match event {
        Event::ApprovalRequested(request) => {
            format!("{} [{}] risk {}", of_call(&request.call), request.rule, request.risk)
        }
        Event::ApprovalDecided(decision) => of_answer(decision.answer).to_owned(),
        Event::PolicyChanged { file, change, .. } => {
            format!("{}: {}", file.display(), Bytes::from(change.as_str()).display())
        }
        Event::Intent { call, rule, .. } => format!("{} [{rule}]", of_call(call)),
        Event::SecretReleased { name, class, how, .. } => {
            format!("{} ({class}) as {how}", Bytes::from(name.as_str()).display())
        }
        Event::Refused { call, refusal, .. } => {
            let call = call.as_ref().map(of_call).unwrap_or_default();
            format!("{call} [{}] {}", refusal.rule, Bytes::from(refusal.message.as_str()).display())
        }
        Event::Settled { outcome, failure, .. } => match (outcome, failure) {
            (Some(outcome), _) => format!("{} in {} ms", of_exit(outcome.exit), outcome.duration_ms),
            (None, Some(failure)) => format!("failed: {}", Bytes::from(failure.as_str()).display()),
            (None, None) => "done".to_owned(),
        },
        Event::Battery { passed, total, backend, .. } => format!("{backend}: {passed} of {total} held"),
        _ => String::new(),
    };
    let id = event.transaction().map(ToString::to_string).unwrap_or_default();
    format!("{kind:<18} {id} {about}")
}

fn of_answer(answer: ApprovalAnswer) -> &'static str {
    match answer {
        ApprovalAnswer::Once => "yes, once",
        ApprovalAnswer::Session => "yes, for the session",
        ApprovalAnswer::AlwaysHere => "yes, always here",
        ApprovalAnswer::Denied => "no",
        ApprovalAnswer::Expired => "no, nobody answered in time",
        ApprovalAnswer::Unreachable => "no, nobody could be asked",
        ApprovalAnswer::Superseded => "no, it changed while the question waited",
    }
}

fn of_call(call: &Call) -> String {
    match call {
        Call::Exec(exec) => exec.argv.iter().map(Bytes::display).collect::<Vec<_>>().join(" "),
        Call::File(file) => {
            let verb = match file {
                FileCall::Read { .. } => "read",
                FileCall::Write { .. } => "write",
                FileCall::List { .. } => "list",
                FileCall::Symlink { .. } => "symlink",
            };
            format!("{verb} {}", file.path().display())
        }
        Call::Apply(patch) => format!("apply {} files", patch.files.len()),
    }
}

fn of_exit(exit: Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit {code}"),
        Exit::Signal { signal } => format!("signal {signal}"),
        Exit::TimedOut => "timed out".to_owned(),
        Exit::NotExecuted { errno } => format!("not executed: {}", std::io::Error::from_raw_os_error(errno)),
    }
}

#[derive(Serialize)]
struct Checked {
    schema: u32,
    valid: bool,
    records: u64,
    head: Option<String>,
    incomplete: Vec<String>,
    problem: Option<String>,
}

fn check(path: &Path, head: Option<&str>, form: Form) -> ExitCode {
    let expected = match head.map(str::parse::<Head>).transpose() {
        Ok(expected) => expected,
        Err(error) => {
            return error::failed(&error, Some("a head is SEQ:HASH, as an earlier verify printed it"));
        }
    };
    match verify(path, expected.as_ref()) {
        Ok(found) => {
            let checked = Checked {
                schema: 1,
                valid: true,
                records: found.records,
                head: found.head.as_ref().map(ToString::to_string),
                incomplete: found.incomplete.iter().map(ToString::to_string).collect(),
                problem: None,
            };
            show_check(&checked, form);
            ExitCode::SUCCESS
        }
        Err(error) => broken(&error, form),
    }
}

fn broken(error: &VerifyError, form: Form) -> ExitCode {
    let problem = error::chain(error);
    match form {
        Form::Json => print_json(&Checked {
            schema: 1,
            valid: false,
            records: 0,
            head: None,
            incomplete: Vec::new(),
            problem: Some(problem),
        }),
        Form::Short | Form::Long => note!("ringfence: the ledger does not verify: {problem}"),
    }
    ExitCode::from(BROKEN)
}

fn show_check(checked: &Checked, form: Form) {
    if let Form::Json = form {
        return print_json(checked);
    }
    say!("the chain is whole: {} records", checked.records);
    if let Some(head) = &checked.head {
        say!("head {head}");
        say!(
            "  keep it elsewhere; `ringfence ledger verify --head {head}` then shows whether records were cut off"
        );
    }
    for transaction in &checked.incomplete {
        say!("incomplete {transaction}: written before it happened, and no outcome was recorded");
    }
}
