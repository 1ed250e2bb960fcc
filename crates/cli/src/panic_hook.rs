//! The panic message: place and reason, redacted.

use std::panic::PanicHookInfo;

use ringfence_types::ByteString;

use crate::args::FAILED;
use crate::output;
use crate::redactor::CliRedactor;

/// From now on a panic in any thread ends the process with the exit code for internal errors.
pub(crate) fn tell() {
    std::panic::set_hook(Box::new(|info| {
        output::written(&told(info, CliRedactor::ready()));
        end();
    }));
}

fn told(info: &PanicHookInfo<'_>, redactor: Option<&CliRedactor>) -> String {
    let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
    report(&place, info.payload_as_str(), redactor)
}

/// Ends lines with a carriage return, for a terminal in raw mode.
fn report(place: &str, message: Option<&str>, redactor: Option<&CliRedactor>) -> String {
    // Without a redactor the message may contain a secret, so it is omitted.
    let message = redactor.zip(message).map(|(redactor, message)| redactor.clean(message));
    let message = message.map(|message| format!(": {}", ByteString::from(message.as_str()).display()));
    format!(
        "ringfence: internal error at {place}{}\r\n  hint: this is a defect of Ringfence; commands in the sandbox have ended\r\n",
        message.unwrap_or_default()
    )
}

#[expect(
    clippy::exit,
    reason = "the process is in an unknown state: nothing of it may run on, and the code says whose fault it is"
)]
fn end() {
    std::process::exit(i32::from(FAILED));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use crate::redactor::CliRedactor;
    use crate::testing::variable;

    const VICTIM: &str = "panic_hook::tests::breaks_where_it_is_told_to";

    fn stored() -> String {
        ["correct", "horse", "battery"].join("-")
    }

    /// Does nothing unless another test starts it as a separate process.
    #[test]
    fn breaks_where_it_is_told_to() {
        let Some(secret) = variable("RINGFENCE_TEST_BREAKS") else { return };
        let known = CliRedactor::of("DEPLOY", stored().as_bytes());
        std::panic::set_hook(Box::new(move |info| {
            crate::output::written(&super::told(info, Some(&known)));
            super::end();
        }));
        let thread = std::thread::spawn(move || panic!("\u{1b}[2J no value but {}", secret.display()));
        drop(thread.join());
        unreachable!("the hook has ended the process");
    }

    #[test]
    fn a_panic_says_where_and_no_secret_and_ends_with_125() {
        let shaped = format!("AKIA{}", "QZ7XK4MWNP2RJTVB");
        for (secret, kind) in [(stored(), "secret/DEPLOY"), (shaped, "aws")] {
            let program = std::env::current_exe().unwrap();
            let done = Command::new(program)
                .args(["--exact", VICTIM, "--nocapture", "--test-threads", "1"])
                .env("RINGFENCE_TEST_BREAKS", &secret)
                .output()
                .unwrap();
            let err = String::from_utf8(done.stderr).unwrap();
            assert_eq!(done.status.code(), Some(125), "{err}");
            assert!(err.contains("ringfence: internal error at ") && err.contains("panic_hook.rs:"), "{err}");
            assert!(err.contains("no value but [redacted:") && err.contains(kind), "{err}");
            assert!(!err.contains(&secret) && !err.contains('\u{1b}'), "{err}");
        }
    }

    /// A panic while the secrets are read reports only the place.
    #[test]
    fn without_a_redactor_nothing_of_the_message_is_said() {
        let told = super::report("x.rs:1", Some("a value"), None);
        assert!(told.contains("x.rs:1") && !told.contains("a value"), "{told}");
    }

    #[test]
    fn without_the_secrets_nothing_of_the_message_is_said() {
        let [store, key] = ["/s/store", "/s/key"].map(std::path::PathBuf::from);
        let unread = CliRedactor::without(ringfence_runtime::secrets::SecretStoreError::NoKey { store, key });
        let told = super::report("x.rs:1", Some("a value"), Some(&unread));
        assert!(
            told.contains("x.rs:1") && told.contains("[not shown") && !told.contains("a value"),
            "{told}"
        );
    }
}
