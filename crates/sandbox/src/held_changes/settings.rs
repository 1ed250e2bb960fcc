//! Which settings a repository that came from inside may have: those that make git execute nothing.
//!
//! The list has what is harmless, not what is harmful: a setting that this version does not know may name a program in the
//! next version of git.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::resume_options::is_ref;
use crate::git_config::GitSetting;

/// The questions about the machine that the value of a setting raises.
pub(super) trait Leads {
    /// Whether a path, taken from the repository or its checkout, leads where commands can write outside every root.
    fn leads_out(&self, path: &Path) -> bool;
    /// Whether a path is a checkout that this repository may have.
    fn is_checkout(&self, path: &Path) -> bool;
}

/// No setting of these sections names a program, a file that is read as configuration, or a place: all of them are words and
/// colours. Other sections are listed by setting.
const SECTIONS: &[&str] = &["advice", "author", "color", "column", "committer", "versionsort"];

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
            "preciousobjects",
            "relativeworktrees",
            "worktreeconfig",
        ],
    ),
    (
        "remote",
        &[
            "followremotehead",
            "gh-resolved",
            "mirror",
            "partialclonefilter",
            "promisor",
            "prune",
            "prunetags",
            "skipdefaultupdate",
            "skipfetchall",
            "tagopt",
        ],
    ),
    (
        "submodule",
        &["active", "branch", "fetchjobs", "fetchrecursesubmodules", "ignore", "path", "recurse", "shallow"],
    ),
    (
        "blame",
        &[
            "blankboundary",
            "coloring",
            "date",
            "markignoredlines",
            "markunblamablelines",
            "showemail",
            "showroot",
        ],
    ),
    ("feature", &["experimental", "manyfiles"]),
    ("gui", &["geometry", "wmstate"]),
    ("i18n", &["commitencoding", "logoutputencoding"]),
    ("index", &["recordendofindexentries", "recordoffsettable", "skiphash", "sparse", "threads", "version"]),
    (
        "pack",
        &[
            "allowpackreuse",
            "compression",
            "deltacachelimit",
            "deltacachesize",
            "depth",
            "indexversion",
            "packsizelimit",
            "readreverseindex",
            "threads",
            "usebitmapboundarytraversal",
            "usebitmaps",
            "usesparse",
            "window",
            "windowmemory",
            "writebitmaphashcache",
            "writebitmaplookuptable",
            "writereverseindex",
        ],
    ),
    ("rerere", &["autoupdate", "enabled"]),
    ("user", &["email", "name", "signingkey", "useconfigonly"]),
    ("init", &["defaultbranch"]),
    ("commit", &["cleanup", "gpgsign", "status", "verbose"]),
    ("tag", &["forcesignannotated", "gpgsign"]),
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

/// The sections whose settings may have a name in the middle. In any other section git has none, so that one means something that
/// this table does not know.
const WITH_SUBSECTIONS: &[&str] = &[
    "advice",
    "branch",
    "color",
    "diff",
    "filter",
    "gc",
    "http",
    "lfs",
    "maintenance",
    "merge",
    "remote",
    "submodule",
];

/// `git lfs install --local` writes exactly these; the program is the system's.
const LFS: &[&str] = &["git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process"];

/// Whether git executes nothing because of this setting, and reads no other configuration.
pub(super) fn is_harmless(setting: &GitSetting, leads: &dyn Leads) -> bool {
    let (Ok(section), Ok(key)) = (str::from_utf8(&setting.section), str::from_utf8(&setting.key)) else {
        return false;
    };
    let listed = |table: &[(&str, &[&str])]| {
        table.iter().any(|(known, keys)| *known == section && keys.contains(&key))
    };
    let value = setting.value.as_slice();
    if setting.subsection.is_some() && !WITH_SUBSECTIONS.contains(&section) {
        return false;
    }
    if section == "remote" && setting.subsection.as_deref().is_some_and(|name| !is_plain_remote(name, leads))
    {
        return false;
    }
    if listed(ADDRESSES) {
        return is_harmless_address(value, leads);
    }
    match (section, key) {
        ("core", "worktree") => leads.is_checkout(Path::new(OsStr::from_bytes(value))),
        ("core", "hookspath") => value == b"/dev/null",
        ("core", "fsmonitor") => matches!(value, b"false" | b"no" | b"off" | b"0"),
        ("remote", "fetch") => is_plain_refspec(value),
        // `git push` hands it to a git in each submodule.
        ("remote", "push") => !value.starts_with(b"-"),
        ("extensions", "partialclone") => is_plain_remote(value, leads),
        ("submodule", "update") => matches!(value, b"checkout" | b"merge" | b"none" | b"rebase"),
        ("filter", "clean" | "smudge" | "process") => LFS.iter().any(|known| known.as_bytes() == value),
        ("extensions", "refstorage") => matches!(value, b"files" | b"reftable"),
        // By its signature: git would have programs check each.
        ("branch" | "tag", "sort") => is_plain_sort(value),
        ("branch", "mergeoptions") => false,
        // All else that is said about a branch is for programs that are not git.
        ("branch", _) => true,
        _ => SECTIONS.contains(&section) || listed(SETTINGS),
    }
}

fn is_plain_sort(key: &[u8]) -> bool {
    let plain = key.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-:".contains(byte));
    plain && !key.to_ascii_lowercase().windows(9).any(|window| window == b"signature")
}

/// Git hands the name of a remote to `git fetch` as an argument for `--all` and for what a partial clone lacks, and there
/// `--upload-pack=x` is an option that executes x. A remote without a `url` has its name for one, which is a path of the checkout then.
fn is_plain_remote(name: &[u8], leads: &dyn Leads) -> bool {
    let plain = |byte: &u8| !byte.is_ascii_whitespace() && !byte.is_ascii_control() && *byte != b':';
    let leads_elsewhere = name.split(|byte| *byte == b'/').any(|part| part == b"..");
    !name.first().is_none_or(|first| b"-/.~".contains(first))
        && name.iter().all(plain)
        && !leads_elsewhere
        && !leads.leads_out(Path::new(OsStr::from_bytes(name)))
}

/// Whether what is fetched is kept in `refs`. `git push` writes the file of the git directory that stands behind the last colon,
/// and `commondir` says which configuration git reads.
fn is_plain_refspec(refspec: &[u8]) -> bool {
    let colon = refspec.iter().rposition(|byte| *byte == b':');
    let kept = colon.and_then(|colon| refspec.get(colon + 1..)).unwrap_or_default();
    kept.is_empty() || is_ref(kept)
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
    // Git takes `~` for a home.
    let local = |path: &[u8]| !path.starts_with(b"~") && !leads.leads_out(Path::new(OsStr::from_bytes(path)));
    if let Some((scheme, rest)) = before(b"://").filter(|(scheme, _)| word(scheme)) {
        let Some(rest) = unescaped(rest) else { return false };
        let scheme = scheme.to_ascii_lowercase();
        // Git takes what stands where a host would be for the first part of the path.
        let file = || scheme == b"file" && local(&[b"/", rest.as_slice()].concat());
        return (SCHEMES.contains(&scheme.as_slice()) && rest.first() != Some(&b'-')) || file();
    }
    let is_remote = before(b":").is_some_and(|(host, _)| !host.contains(&b'/'));
    is_remote || local(address)
}

/// With `%` and two digits read as git reads them. `None` where git would not, and with a zero byte.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        out.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = tail;
    }
    (!out.contains(&0)).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_config::parse;

    struct World;

    impl Leads for World {
        fn leads_out(&self, path: &Path) -> bool {
            path.starts_with("/state") || path.starts_with("link")
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
            "[remote \"a/b.c-d_é@1\"]\n\tfetch = refs/heads/x\n\tfetch = +refs/*:refs/*\n\tfetch = ^refs/heads/y\n\tfetch = x:\n\tpush = +refs/*:refs/*\n",
            "[remote \"o\"]\n\turl = https://example.org/a%20b\n[branch]\n\tsort = -committerdate\n[tag]\n\tsort = version:refname\n",
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
            "[remote \"--upload-pack=x\"]\nurl = https://example.org/a",
            "[remote \"/state/x\"]\nprune = true",
            "[remote \"../state/x\"]\nprune = true",
            "[remote \"a/../../x\"]\nprune = true",
            "[remote \"~u/x\"]\nprune = true",
            "[remote \"ext::x\"]\nprune = true",
            "[remote \"file:x\"]\nprune = true",
            "[remote \"a b\"]\nprune = true",
            "[remote \"\"]\nprune = true",
            "[remote \"link\"]\nprune = true",
            "[branch \"b\"]\nremote = link",
            "[branch \"b\"]\npushRemote = link",
            "[remote]\npushDefault = link",
            "[extensions]\npartialClone = link",
            "[remote \"o\"]\nfetch = refs/heads/main:commondir",
            "[remote \"o\"]\npush = --receive-pack=x",
            "[extensions]\npartialClone = --upload-pack=x",
            "[extensions]\npartialClone = ../state/x",
            "[extensions]\npartialClone = ext::x",
            "[extensions]\npartialClone",
            "[remote \"o\"]\nfetch = +refs/heads/*:*",
            "[remote \"o\"]\nfetch = a:b:hooks/x",
            "[remote \"o\"]\nfetch = x:refs/../commondir",
            "[remote \"o\"]\nuploadpack = x",
            "[remote \"o\"]\nreceivepack = x",
            "[remote \"o\"]\nvcs = x",
            "[remote \"o\"]\nproxy = x",
            "[remote \"o\"]\nurl = ext::x",
            "[remote \"o\"]\nurl = other://x",
            "[remote \"o\"]\nurl = -x",
            "[remote \"o\"]\nurl = /state/homes/x",
            "[remote \"o\"]\npushurl = file:///state/x",
            "[remote \"o\"]\nurl = file://state/homes/x",
            "[remote \"o\"]\nurl = file:///%73tate/homes/x",
            "[remote \"o\"]\nurl = file:///a%00b",
            "[remote \"o\"]\nurl = https://a/%zz",
            "[remote \"o\"]\nurl = ssh://%2dx/y",
            "[remote \"o\"]\nurl = ~/x",
            "[branch]\nsort = signature",
            "[branch]\nsort = -signature:grade",
            "[tag]\nsort = Signature",
            "[branch \"b\"]\nmergeOptions = x",
            "[extensions]\nrefStorage = reftable:///state/x",
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
            "[core \"fsmonitor\"]\nbare = y",
            "[user \"x\"]\nname = y",
            "[init \"x\"]\ndefaultBranch = y",
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

    /// Which settings the git of this machine knows.
    fn known_to_git() -> Vec<String> {
        let output = std::process::Command::new("git")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .args(["help", "--config"])
            .output()
            .unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        listed.lines().filter(|line| line.contains('.') && !line.contains(' ')).map(str::to_owned).collect()
    }

    /// The settings that git documents and that stay in a repository from inside with any value: each was read in git's manual.
    /// A setting that is new in git, or in a table here, has to be read before it is added.
    #[test]
    fn every_documented_setting_that_stays_was_read() {
        let read: Vec<&str> =
            include_str!("settings/read.txt").lines().filter(|l| !l.starts_with('#')).collect();
        let known = known_to_git();
        assert!(known.len() > 500, "git lists its settings: {}", known.len());
        let stays = |name: &&String| {
            let name = name.to_ascii_lowercase();
            let (section, rest) = name.split_once('.').unwrap();
            let (middle, key) =
                rest.rsplit_once('.').map_or((None, rest), |(middle, key)| (Some(middle), key));
            let setting = GitSetting {
                section: section.into(),
                subsection: middle.map(Into::into),
                key: key.into(),
                // No word that a setting with few values has.
                value: b"./any --value;x".to_vec(),
            };
            is_harmless(&setting, &World)
        };
        let staying: Vec<&str> = known.iter().filter(stays).map(String::as_str).collect();
        let unread: Vec<&&str> = staying.iter().filter(|name| !read.contains(name)).collect();
        assert!(unread.is_empty(), "not in read.txt: {unread:#?}");
    }
}
