//! Programs by name: what kind of thing each is, as data. Lists of documents 000 and 001, and what they left out.

use std::collections::HashMap;
use std::sync::LazyLock;

use ringfence_types::Risk;

use super::catalogue;
use super::options::ProgramSpec;
use super::program_origin::family;
use super::wrappers::Wrapper;

#[derive(Clone, Copy, Debug)]
pub(super) enum ProgramClass {
    /// Its options are described.
    Catalogued(&'static ProgramSpec),
    Git,
    /// `git-clone`: a subcommand as a program of its own.
    GitPart,
    Find,
    /// `test` and `[`.
    Test,
    Shell(ShellSupport),
    /// It runs another command that it is given.
    Wrapper(&'static Wrapper),
    Network,
    Deletion,
    /// It runs programs in a language of its own; the options that carry code.
    Interpreter(&'static str),
    /// It fetches or finds a program by name and runs it.
    Runner,
    Rsync,
    Other(Risk, &'static str),
}

/// How much of a shell's language is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShellSupport {
    /// Its text can be read.
    Posix,
    /// Nothing in it can be judged.
    Closed,
}

impl ProgramClass {
    /// Whether being called by the other name changes nothing.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Catalogued(a), Self::Catalogued(b)) => a.name == b.name,
            (Self::Wrapper(_), Self::Wrapper(_))
            | (Self::Other(..), Self::Catalogued(_) | Self::Wrapper(_)) => false,
            (Self::Shell(a), Self::Shell(b)) => a == b,
            (Self::Other(a, _), Self::Other(b, _)) => a >= b,
            (Self::Interpreter(a), Self::Interpreter(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// S001-21, with what its "etc." means.
const NETWORK: &str = "curl wget wget2 ssh slogin scp sftp nc ncat netcat telnet ftp tftp lftp ncftp socat dig host \
    nslookup drill ping ping6 fping hping hping3 arping tracepath tracepath6 traceroute traceroute6 mtr nmap masscan \
    zmap aria2c axel lynx links elinks w3m http https httpie xh xhs curlie whois rsh rcp rlogin rexec ssh-keyscan \
    ssh-copy-id sshfs sshpass autossh mosh smbclient rclone iperf iperf3 websocat wscat grpcurl croc magic-wormhole \
    wormhole ngrok cloudflared openvpn wg-quick git-remote-http git-remote-https git-remote-ftp git-remote-ftps \
    git-http-fetch git-http-push git-http-backend git-daemon";

const DELETION: &str = "rm rmdir del erase rd unlink shred srm wipe";

/// Their text can be read: the reader of shell text holds for them.
const SHELLS: &str = "sh bash dash ash zsh ksh ksh93";
const CLOSED_SHELLS: &str = "fish csh tcsh mksh lksh oksh pdksh yash posh rbash rzsh rksh hush powershell pwsh cmd command.com nu nushell xonsh elvish murex rc es scsh oil osh ysh";

/// Names and the options that carry code; `*` where the first operand does. Without a script they read code from their
/// input.
const INTERPRETERS: &[(&str, &str)] = &[
    ("python pypy python2 python3 pypy3 micropython ipython bpython", "-c -m"),
    ("perl raku", "-e -E -M -m -n -p -i -d"),
    ("ruby jruby irb truffleruby", "-e -r -n -p -i"),
    ("node nodejs bun qjs d8", "-e -p -r --eval --print --require --import --loader --experimental-loader"),
    ("php php-cgi", "-r -B -R -E -F -d"),
    ("lua luajit texlua", "-e -l"),
    ("julia", "-e -E --eval --print -L --load"),
    ("Rscript R osascript groovy scala scala3 kotlin jshell amm", "-e --script"),
    ("awk gawk mawk nawk original-awk frawk goawk", "*"),
    ("deno", "eval repl"),
    (
        "tclsh wish expect m4 ghci ocaml erl escript elixir iex racket guile sbcl clisp gforth swipl octave",
        "-e -c --eval",
    ),
    ("vi vim nvim ex view rvim gvim vimdiff nano emacs ed joe kak", "-c -S -s -u -U --cmd --eval -f -l +"),
    ("gdb lldb sqlite3 psql mysql mariadb redis-cli mongosh bc dc gnuplot", "-e -c -x --eval-command -cmd"),
];

const BUILD: &str = "gmake bmake ninja just rake task cmake scons bazel meson java javac jar dotnet mono go cargo \
    rustc gcc cc g++ c++ clang clang++ tcc zig tsc pytest tox nox jest vitest mocha eslint prettier black ruff mypy";

/// They fetch or find a program and run it.
const RUNNERS: &str = "npx bunx pnpx uvx yarnpkg";

const PACKAGES: &str = "npm yarn pnpm pip pip3 pipx uv poetry pdm hatch conda mamba micromamba easy_install gem bundle \
    bundler composer apt apt-get aptitude dpkg yum dnf microdnf rpm zypper pacman apk brew port snap flatpak nix \
    nix-env nix-shell guix cpan cpanm luarocks cabal stack opam mix hex rebar3 nuget mvn gradle gradlew sbt lein vcpkg \
    conan spack rustup nvm asdf mise volta fnm pyenv rbenv sdkman";

const MACHINE: &str = "docker podman nerdctl buildah skopeo ctr crictl runc crun kubectl helm k9s oc minikube kind \
    vagrant virsh qemu-system-x86_64 terraform tofu pulumi ansible ansible-playbook aws gcloud gsutil az doctl flyctl \
    heroku gh glab hub systemctl service init telinit loginctl machinectl journalctl crontab at batch launchctl \
    openssl gpg gpg2 ssh-agent ssh-add ssh-keygen tmux screen dtach zellij dbus-send busctl gdbus tcpdump tshark ip \
    ifconfig route iptables nft tc";

const DISK: &str = "mkfs mke2fs mkswap fdisk sfdisk cfdisk gdisk sgdisk parted wipefs blkdiscard hdparm losetup \
    cryptsetup mount umount swapon swapoff fsck debugfs tune2fs resize2fs lvremove vgremove pvremove mdadm badblocks \
    reboot shutdown poweroff halt insmod rmmod modprobe kexec sysctl useradd userdel usermod passwd chpasswd visudo \
    setcap";

pub(super) fn class_of(name: &[u8]) -> ProgramClass {
    if let Some(class) = exact(name) {
        return class;
    }
    let stem = family(name);
    let by_family = if stem == name { None } else { exact(stem) };
    match by_family {
        // A version of a listed program is not on the list.
        Some(
            ProgramClass::Catalogued(_)
            | ProgramClass::Git
            | ProgramClass::Find
            | ProgramClass::Test
            | ProgramClass::Wrapper(_),
        )
        | None => unlisted(name),
        Some(class) => class,
    }
}

/// Every name that is known.
pub fn known() -> Vec<&'static str> {
    let mut names: Vec<&str> = INDEX.keys().filter_map(|name| std::str::from_utf8(name).ok()).collect();
    names.sort_unstable();
    names
}

fn exact(name: &[u8]) -> Option<ProgramClass> {
    let disk = || name.starts_with(b"mkfs.") || name.starts_with(b"fsck.");
    INDEX.get(name).copied().or_else(|| disk().then_some(CHANGES_MACHINE))
}

const CHANGES_MACHINE: ProgramClass = ProgramClass::Other(Risk::Critical, "a tool that changes the machine");

/// Every name that is known. Where one is in two lists, the later one counts.
static INDEX: LazyLock<HashMap<&'static [u8], ProgramClass>> = LazyLock::new(|| {
    let mut index = HashMap::new();
    let mut add = |names: &'static str, class: ProgramClass| {
        index.extend(names.split_ascii_whitespace().map(|name| (name.as_bytes(), class)));
    };
    add(DISK, CHANGES_MACHINE);
    add(MACHINE, ProgramClass::Other(Risk::High, "a tool that acts on more than the workspace"));
    add(BUILD, ProgramClass::Other(Risk::High, "a program that runs what the project says"));
    add(PACKAGES, ProgramClass::Other(Risk::High, "a package manager"));
    add(RUNNERS, ProgramClass::Runner);
    for (names, code) in INTERPRETERS {
        add(names, ProgramClass::Interpreter(code));
    }
    add(CLOSED_SHELLS, ProgramClass::Shell(ShellSupport::Closed));
    add(SHELLS, ProgramClass::Shell(ShellSupport::Posix));
    add(NETWORK, ProgramClass::Network);
    add(DELETION, ProgramClass::Deletion);
    for wrapper in catalogue::wrappers() {
        add(wrapper.names, ProgramClass::Wrapper(wrapper));
    }
    for program in catalogue::programs() {
        add(program.name, ProgramClass::Catalogued(program));
    }
    add("git", ProgramClass::Git);
    add("find gfind", ProgramClass::Find);
    add("test [", ProgramClass::Test);
    add("rsync", ProgramClass::Rsync);
    index
});

fn unlisted(name: &[u8]) -> ProgramClass {
    if name.starts_with(b"git-") {
        return ProgramClass::GitPart;
    }
    if [&b"ld-linux"[..], b"ld-musl", b"ld.so", b"ld64.so", b"ld-2."]
        .iter()
        .any(|start| name.starts_with(start))
    {
        return ProgramClass::Wrapper(&catalogue::LOADER);
    }
    ProgramClass::Other(Risk::Medium, "")
}
