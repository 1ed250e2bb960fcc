//! What is said when this program breaks: where, and why, without what was in its hands.

use std::panic::PanicHookInfo;

use ringfence_types::Bytes;

use crate::args::FAILED;
use crate::output;
use crate::redactor::Redactor;

/// From here on a panic, in any thread, ends the process with the exit code of our own failures.
pub(crate) fn tell() {
    std::panic::set_hook(Box::new(|info| {
        output::written(&told(info, Redactor::ready()));
        end();
    }));
}

fn told(info: &PanicHookInfo<'_>, redactor: Option<&Redactor>) -> String {
    let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
    report(&place, info.payload_as_str(), redactor)
}

/// A terminal that a command has made raw does not return the carriage by itself.
fn report(place: &str, message: Option<&str>, redactor: Option<&Redactor>) -> String {
    // Without a redactor nobody can say what is in the message.
    let message = redactor.zip(message).map(|(redactor, message)| redactor.clean(message));
    let message = message.map(|message| format!(": {}", Bytes::from(message.as_str()).display()));
    format!(
        "ringfence: it broke at {place}{}\r\n  hint: this is a defect of ringfence; what was running inside has ended\r\n",
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

    use crate::redactor::Redactor;
    use crate::testing::variable;

    const VICTIM: &str = "broken::tests::breaks_where_it_is_told_to";

    fn stored() -> String {
        ["correct", "horse", "battery"].join("-")
    }

    /// Does nothing unless another test starts it as a process of its own.
    #[test]
    fn breaks_where_it_is_told_to() {
        let Some(secret) = variable("RINGFENCE_TEST_BREAKS") else { return };
        let known = Redactor::of("DEPLOY", stored().as_bytes());
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
            assert!(err.contains("ringfence: it broke at ") && err.contains("broken.rs:"), "{err}");
            assert!(err.contains("no value but [redacted:") && err.contains(kind), "{err}");
            assert!(!err.contains(&secret) && !err.contains('\u{1b}'), "{err}");
        }
    }

    /// Whoever breaks while the secrets are read says where, and nothing else.
    #[test]
    fn without_a_redactor_nothing_of_the_message_is_said() {
        let told = super::report("x.rs:1", Some("a value"), None);
        assert!(told.contains("x.rs:1") && !told.contains("a value"), "{told}");
    }

    #[test]
    fn without_the_secrets_nothing_of_the_message_is_said() {
        let [store, key] = ["/s/store", "/s/key"].map(std::path::PathBuf::from);
        let unread = Redactor::without(ringfence_runtime::secrets::StoreError::NoKey { store, key });
        let told = super::report("x.rs:1", Some("a value"), Some(&unread));
        assert!(
            told.contains("x.rs:1") && told.contains("[not shown") && !told.contains("a value"),
            "{told}"
        );
    }
}
