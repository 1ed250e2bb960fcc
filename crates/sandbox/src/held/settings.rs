//! Which settings a repository that came from inside may have: those that make git execute nothing.
//!
//! A list of what is harmless, not of what is not: a setting that nobody here has heard of may name a program in the next
//! version of git.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::git_config::Setting;

/// What of the machine the value of a setting is looked at with.
pub(super) trait Leads {
    /// Whether a path, taken from the repository or its checkout, leads where commands can write outside every root.
    fn leads_out(&self, path: &Path) -> bool;
    /// Whether a path is a checkout that this repository may have.
    fn is_checkout(&self, path: &Path) -> bool;
}

/// No setting of these sections names a program, a file that is read as configuration, or a place.
const SECTIONS: &[&str] = &[
    "advice",
    "author",
    "blame",
    "color",
    "column",
    "committer",
    "feature",
    "gui",
    "i18n",
    "index",
    "pack",
    "rerere",
    "user",
    "versionsort",
];

/// Settings that are harmless whatever their value is: section and names.
const SETTINGS: &[(&str, &[&str])] = &[
    (
        "core",
        &[
            "abbrev",
            "autocrlf",
            "bare",
            "bigfilethreshold",
            "checkstat",
            "commentchar",
            "commitgraph",
            "compression",
            "deltabasecachelimit",
            "eol",
            "filemode",
            "fscache",
            "fsync",
            "fsyncmethod",
            "hidedotfiles",
            "ignorecase",
            "logallrefupdates",
            "longpaths",
            "loosecompression",
            "multipackindex",
            "packedgitlimit",
            "packedgitwindowsize",
            "precomposeunicode",
            "preloadindex",
            "quotepath",
            "repositoryformatversion",
            "safecrlf",
            "sharedrepository",
            "sparsecheckout",
            "sparsecheckoutcone",
            "splitindex",
            "symlinks",
            "trustctime",
            "untrackedcache",
            "usereplacerefs",
            "warnambiguousrefs",
            "whitespace",
        ],
    ),
    (
        "extensions",
        &[
            "compatobjectformat",
            "noop",
            "objectformat",
            "partialclone",
            "preciousobjects",
            "refstorage",
            "relativeworktrees",
            "worktreeconfig",
        ],
    ),
    (
        "remote",
        &[
            "fetch",
            "followremotehead",
            "gh-resolved",
            "mirror",
            "partialclonefilter",
            "promisor",
            "prune",
            "prunetags",
            "push",
            "skipdefaultupdate",
            "skipfetchall",
            "tagopt",
        ],
    ),
    (
        "submodule",
        &["active", "branch", "fetchjobs", "fetchrecursesubmodules", "ignore", "path", "recurse", "shallow"],
    ),
    ("init", &["defaultbranch"]),
    ("commit", &["cleanup", "gpgsign", "status", "verbose"]),
    ("tag", &["forcesignannotated", "gpgsign", "sort"]),
    ("pull", &["ff", "rebase"]),
    ("push", &["autosetupremote", "default", "followtags", "gpgsign", "recursesubmodules"]),
    (
        "fetch",
        &[
            "fsckobjects",
            "output",
            "parallel",
            "prune",
            "prunetags",
            "recursesubmodules",
            "unpacklimit",
            "writecommitgraph",
        ],
    ),
    ("transfer", &["fsckobjects", "hiderefs", "unpacklimit"]),
    (
        "receive",
        &[
            "advertisepushoptions",
            "autogc",
            "denycurrentbranch",
            "denydeletes",
            "denynonfastforwards",
            "fsckobjects",
            "unpacklimit",
        ],
    ),
    (
        "uploadpack",
        &["allowanysha1inwant", "allowfilter", "allowreachablesha1inwant", "allowtipsha1inwant", "hiderefs"],
    ),
    (
        "gc",
        &[
            "aggressivedepth",
            "aggressivewindow",
            "auto",
            "autodetach",
            "autopacklimit",
            "cruftpacks",
            "packrefs",
            "pruneexpire",
            "reflogexpire",
            "reflogexpireunreachable",
            "worktreepruneexpire",
            "writecommitgraph",
        ],
    ),
    ("maintenance", &["auto", "autodetach", "enabled", "schedule", "strategy"]),
    (
        "merge",
        &[
            "autostash",
            "conflictstyle",
            "directoryrenames",
            "ff",
            "log",
            "name",
            "renamelimit",
            "renames",
            "stat",
        ],
    ),
    (
        "diff",
        &[
            "algorithm",
            "binary",
            "cachetextconv",
            "colormoved",
            "context",
            "funcname",
            "ignoresubmodules",
            "interhunkcontext",
            "mnemonicprefix",
            "noprefix",
            "renamelimit",
            "renames",
            "submodule",
            "wordregex",
            "xfuncname",
        ],
    ),
    ("rebase", &["abbreviatecommands", "autosquash", "autostash", "stat", "updaterefs"]),
    (
        "status",
        &[
            "aheadbehind",
            "branch",
            "relativepaths",
            "short",
            "showstash",
            "showuntrackedfiles",
            "submodulesummary",
        ],
    ),
    ("log", &["abbrevcommit", "date", "decorate", "follow", "showroot"]),
    ("checkout", &["guess", "thresholdforparallelism", "workers"]),
    ("http", &["lowspeedlimit", "lowspeedtime", "postbuffer", "version"]),
    ("protocol", &["version"]),
    ("lfs", &["access", "repositoryformatversion"]),
    ("filter", &["required"]),
    ("worktree", &["guessremote", "userelativepaths"]),
];

/// Settings whose value is a URL, the name of a remote or a path to a repository.
const ADDRESSES: &[(&str, &[&str])] = &[
    ("remote", &["pushdefault", "pushurl", "url"]),
    ("branch", &["pushremote", "remote"]),
    ("submodule", &["url"]),
    ("checkout", &["defaultremote"]),
];

/// `git lfs install --local` writes exactly these; the program is the system's.
const LFS: &[&str] = &["git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process"];

/// Whether git executes nothing because of this setting, and reads no other configuration.
pub(super) fn is_harmless(setting: &Setting, leads: &dyn Leads) -> bool {
    let (Ok(section), Ok(key)) = (str::from_utf8(&setting.section), str::from_utf8(&setting.key)) else {
        return false;
    };
    let listed = |table: &[(&str, &[&str])]| {
        table.iter().any(|(known, keys)| *known == section && keys.contains(&key))
    };
    let value = setting.value.as_slice();
    if listed(ADDRESSES) {
        return is_harmless_address(value, leads);
    }
    match (section, key) {
        ("core", "worktree") => leads.is_checkout(Path::new(OsStr::from_bytes(value))),
        ("core", "hookspath") => value == b"/dev/null",
        ("core", "fsmonitor") => matches!(value, b"false" | b"no" | b"off" | b"0"),
        ("submodule", "update") => matches!(value, b"checkout" | b"merge" | b"none" | b"rebase"),
        ("filter", "clean" | "smudge" | "process") => LFS.iter().any(|known| known.as_bytes() == value),
        // All else that is said about a branch is for programs that are not git.
        ("branch", _) => true,
        _ => SECTIONS.contains(&section) || listed(SETTINGS),
    }
}

/// A transport that git has itself, to another machine or to a repository that is not in a place for commands alone.
fn is_harmless_address(address: &[u8], leads: &dyn Leads) -> bool {
    const SCHEMES: [&[u8]; 8] = [b"https", b"http", b"ssh", b"git", b"git+ssh", b"ssh+git", b"ftp", b"ftps"];
    let before = |mark: &[u8]| {
        let at = address.windows(mark.len()).position(|window| window == mark)?;
        Some((address.get(..at)?, address.get(at + mark.len()..)?))
    };
    let word = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    if address.first() == Some(&b'-') || before(b"::").is_some_and(|(helper, _)| word(helper)) {
        return false;
    }
    let local = |path: &[u8]| !leads.leads_out(Path::new(OsStr::from_bytes(path)));
    if let Some((scheme, rest)) = before(b"://").filter(|(scheme, _)| word(scheme)) {
        let scheme = scheme.to_ascii_lowercase();
        return SCHEMES.contains(&scheme.as_slice()) || (scheme == b"file" && local(rest));
    }
    let is_remote = before(b":").is_some_and(|(host, _)| !host.contains(&b'/'));
    is_remote || local(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_config::parse;

    struct World;

    impl Leads for World {
        fn leads_out(&self, path: &Path) -> bool {
            path.starts_with("/state")
        }
        fn is_checkout(&self, path: &Path) -> bool {
            path == Path::new("../../../sub")
        }
    }

    fn harmless(text: &str) -> bool {
        let config = parse(text.as_bytes());
        assert!(config.bad.is_none() && !config.settings.is_empty(), "{text}");
        config.settings.iter().all(|setting| is_harmless(setting, &World))
    }

    #[test]
    fn what_clones_and_submodules_have_stays() {
        for text in [
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
            "[remote \"origin\"]\n\turl = https://example.org/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            "[remote \"o\"]\n\turl = git@example.org:a/b.git\n\turl = ../other\n\turl = ssh://[::1]/x\n\turl = file:///srv/x\n",
            "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n\tvscode-merge-base = origin/main\n",
            "[submodule]\n\tactive = .\n[submodule \"a\"]\n\turl = https://example.org/a\n\tupdate = rebase\n",
            "[core]\n\tworktree = ../../../sub\n\thooksPath = /dev/null\n\tfsmonitor = false\n",
            "[user]\n\tname = x\n\temail = y\n[commit]\n\tgpgsign = false\n",
            "[extensions]\n\tobjectFormat = sha256\n\tworktreeConfig = true\n\tpartialClone = origin\n",
            "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n\trequired = true\n",
        ] {
            assert!(harmless(text), "{text}");
        }
    }

    /// Every setting with which git 2.47 is known to execute something or to read another configuration.
    #[test]
    fn what_executes_does_not() {
        for text in [
            "[core]\nfsmonitor = x",
            "[core]\nfsmonitor",
            "[core]\npager = x",
            "[core]\neditor = x",
            "[core]\nsshCommand = x",
            "[core]\naskPass = x",
            "[core]\ngitProxy = x",
            "[core]\nhooksPath = hooks",
            "[core]\nalternateRefsCommand = x",
            "[core]\nattributesFile = x",
            "[core]\nworktree = /home/x",
            "[core]\nvirtualFilesystem = x",
            "[core]\nprotectNTFS = false",
            "[include]\npath = x",
            "[includeIf \"gitdir:/\"]\npath = x",
            "[filter \"a\"]\nclean = x",
            "[filter \"a\"]\nsmudge = x",
            "[filter \"a\"]\nprocess = x",
            "[diff]\nexternal = x",
            "[diff \"a\"]\ncommand = x",
            "[diff \"a\"]\ntextconv = x",
            "[merge \"a\"]\ndriver = x",
            "[pager]\nlog = x",
            "[sequence]\neditor = x",
            "[gpg]\nprogram = x",
            "[gpg \"ssh\"]\ndefaultKeyCommand = x",
            "[gpg \"x509\"]\nprogram = x",
            "[credential]\nhelper = x",
            "[credential \"https://a\"]\nhelper = x",
            "[alias]\nst = !x",
            "[remote \"o\"]\nuploadpack = x",
            "[remote \"o\"]\nreceivepack = x",
            "[remote \"o\"]\nvcs = x",
            "[remote \"o\"]\nproxy = x",
            "[remote \"o\"]\nurl = ext::x",
            "[remote \"o\"]\nurl = other://x",
            "[remote \"o\"]\nurl = -x",
            "[remote \"o\"]\nurl = /state/homes/x",
            "[remote \"o\"]\npushurl = file:///state/x",
            "[branch \"b\"]\nremote = /state/x",
            "[url \"ext::x\"]\ninsteadOf = y",
            "[protocol]\nallow = always",
            "[protocol \"ext\"]\nallow = always",
            "[submodule \"a\"]\nupdate = !x",
            "[submodule \"a\"]\nurl = ext::x",
            "[uploadpack]\npackObjectsHook = x",
            "[uploadarchive]\nx = y",
            "[tar \"x\"]\ncommand = y",
            "[browser \"x\"]\ncmd = y",
            "[man \"x\"]\ncmd = y",
            "[web]\nbrowser = x",
            "[instaweb]\nhttpd = x",
            "[difftool \"x\"]\ncmd = y",
            "[mergetool \"x\"]\ncmd = y",
            "[interactive]\ndiffFilter = x",
            "[trailer \"x\"]\ncommand = y",
            "[trailer \"x\"]\ncmd = y",
            "[sendemail]\nsmtpServer = /x",
            "[sendemail]\ntoCmd = x",
            "[imap]\ntunnel = x",
            "[guitool \"x\"]\ncmd = y",
            "[hook \"x\"]\ncommand = y",
            "[gc]\nrecentObjectsHook = x",
            "[init]\ntemplateDir = x",
            "[commit]\ntemplate = x",
            "[receive]\nprocReceiveRefs = x",
            "[receive]\ncertNonceSeed = x",
            "[http]\nproxy = x",
            "[http]\nsslCert = x",
            "[lfs]\nurl = x",
            "[lfs \"extension.x\"]\nclean = y",
            "[lfs \"customtransfer.x\"]\npath = y",
            "[core.x]\nbare = y",
            "x = y",
            "[trace2]\neventTarget = x",
            "[safe]\ndirectory = *",
            "[annex]\nx = y",
            "[bisect]\nx = y",
            "[maintenance]\nrepo = x",
        ] {
            assert!(!harmless(text), "{text}");
        }
    }
}
