//! System packages the tests need. To add one, add a line.

use std::path::Path;
use std::process::Command;

use crate::steps::Ran;
use crate::{Result, command};

struct Package {
    apt: &'static str,
    /// A program, or an absolute path, that is there when the package is.
    program: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { apt: "bubblewrap", program: "bwrap" },
    Package { apt: "bash", program: "bash" },
    Package { apt: "dash", program: "dash" },
    Package { apt: "zsh", program: "zsh" },
    Package { apt: "git", program: "git" },
    Package { apt: "python3", program: "python3" },
    Package { apt: "nodejs", program: "node" },
    Package { apt: "npm", program: "npm" },
    Package { apt: "strace", program: "strace" },
    Package { apt: "make", program: "make" },
    Package { apt: "gcc", program: "gcc" },
    Package { apt: "libc6-dev", program: "/usr/include/stdio.h" },
    Package { apt: "podman", program: "podman" },
    Package { apt: "runc", program: "runc" },
    Package { apt: "crun", program: "crun" },
    // Where it is installed by systemd its service starts, as that of postgresql does. The tests start their own.
    Package { apt: "docker.io", program: "dockerd" },
    Package { apt: "uidmap", program: "newuidmap" },
    Package { apt: "sqlite3", program: "sqlite3" },
    Package { apt: "postgresql", program: "/usr/lib/postgresql/15/bin/postgres" },
    Package { apt: "openssl", program: "openssl" },
    Package { apt: "util-linux", program: "setpriv" },
    Package { apt: "passwd", program: "useradd" },
    Package { apt: "iproute2", program: "ip" },
    Package { apt: "tinyproxy-bin", program: "tinyproxy" },
    Package { apt: "ca-certificates", program: "/etc/ssl/certs/ca-certificates.crt" },
    Package { apt: "curl", program: "curl" },
    Package { apt: "wget", program: "wget" },
    Package { apt: "openssh-client", program: "ssh" },
    Package { apt: "python3-pip", program: "/usr/lib/python3/dist-packages/pip/__init__.py" },
    Package { apt: "npm", program: "npm" },
    Package { apt: "default-jdk-headless", program: "java" },
    Package { apt: "python3-requests", program: "/usr/lib/python3/dist-packages/requests/__init__.py" },
    Package { apt: "direnv", program: "direnv" },
    // The server alone: unlike openssh-server it brings no service that would start.
    Package { apt: "dropbear-bin", program: "dropbear" },
    Package { apt: "systemd", program: "systemd-analyze" },
    Package { apt: "dbus-daemon", program: "dbus-run-session" },
    Package { apt: "libnotify-bin", program: "notify-send" },
    Package { apt: "python3-dbus", program: "/usr/lib/python3/dist-packages/dbus/__init__.py" },
    Package { apt: "python3-gi", program: "/usr/lib/python3/dist-packages/gi/__init__.py" },
];

/// What runs behind the fence sees these directories alone: a program in somebody's home does not count.
const SYSTEM_DIRECTORIES: &[&str] =
    &["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Installs what is missing, or says what to install.
pub(crate) fn ensure() -> Result<Ran> {
    let missing = missing(PACKAGES, &is_installed);
    if missing.is_empty() {
        return Ok(Ran::Done(format!("all {} present", PACKAGES.len())));
    }
    let names = missing.join(" ");
    if !rustix::process::geteuid().is_root() {
        return Err(format!("missing programs; install them first: sudo apt-get install {names}").into());
    }
    apt(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(&missing);
    apt(&arguments)?;
    Ok(Ran::Done(format!("installed {names}")))
}

fn missing(packages: &[Package], installed: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    packages.iter().filter(|package| !installed(package.program)).map(|package| package.apt).collect()
}

fn is_installed(program: &str) -> bool {
    SYSTEM_DIRECTORIES.iter().any(|directory| Path::new(directory).join(program).exists())
}

fn apt(arguments: &[&str]) -> Result<()> {
    command::must_succeed(
        Command::new("apt-get").arg("--quiet").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absent_programs_are_asked_for() {
        assert_eq!(missing(PACKAGES, &|_| true), Vec::<&str>::new());
        assert_eq!(missing(PACKAGES, &|program| program != "bwrap"), ["bubblewrap"]);
        assert_eq!(missing(PACKAGES, &|_| false).len(), PACKAGES.len());
    }
}
