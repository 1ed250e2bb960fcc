use ringfence_types::Principal;

/// The owner of this process as an operator, without a name or a terminal.
pub fn local_operator() -> Principal {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Principal::Operator { uid: rustix::process::geteuid().as_raw(), name: None, node, terminal: None }
}
