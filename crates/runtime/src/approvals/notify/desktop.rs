//! Desktop notification for the user of this process, through `notify-send`.

use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_ledger::ApprovalRequest;

use super::TIMEOUT;
use crate::approvals::render_prompt;

#[derive(Debug, thiserror::Error)]
pub(super) enum DesktopError {
    #[error("cannot run `notify-send`")]
    Start(#[source] io::Error),
    #[error("`notify-send` failed ({0})")]
    Failed(std::process::ExitStatus),
    #[error("`notify-send` did not end in time")]
    Slow,
}

pub(super) fn notify(request: &ApprovalRequest) -> Result<(), DesktopError> {
    let urgency = if request.risk >= ringfence_types::Risk::High { "critical" } else { "normal" };
    let mut child = Command::new("notify-send")
        .args(["--app-name=ringfence", "--urgency", urgency, "--", "Ringfence asks"])
        .arg(markup(&render_prompt(&request.prompt)))
        // Sockets handed to this process are not for its children.
        .env_remove("LISTEN_FDS")
        .env_remove("LISTEN_PID")
        .env_remove("LISTEN_FDNAMES")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(DesktopError::Start)?;
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        match child.try_wait().map_err(DesktopError::Start)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(DesktopError::Failed(status)),
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
    // A hanging `notify-send` is killed: it is our child, and the notification is best effort.
    let _killed = child.kill().and_then(|()| child.wait());
    Err(DesktopError::Slow)
}

/// Notification servers interpret some HTML. Text of an agent must not become markup.
fn markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::markup;

    #[test]
    fn text_stays_text() {
        assert_eq!(markup("<b>a</b> & <img src=x>"), "&lt;b&gt;a&lt;/b&gt; &amp; &lt;img src=x&gt;");
    }
}
