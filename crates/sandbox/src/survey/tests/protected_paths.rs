//! What rules of files hold, open and close.

use super::*;

/// Holds what begins with one of `held` unless it is one of `open`, and hides what begins with one of `closed`.
#[derive(Default)]
struct Ruled {
    held: Vec<&'static str>,
    open: Vec<&'static str>,
    closed: Vec<&'static str>,
    absent: Vec<PathBuf>,
}

impl Ruled {
    fn is_open(&self, path: &Path) -> bool {
        self.open.iter().any(|open| path.starts_with(open))
    }
}

impl SurveyRules for Ruled {
    fn judge(&self, relative: &Path) -> PathDecision {
        match self.closed.iter().any(|closed| relative.starts_with(closed)) {
            true => PathDecision::Hidden,
            false => TestRules.judge(relative),
        }
    }

    fn protected_at_root(&self) -> &[&str] {
        &[]
    }

    fn protected_anywhere(&self) -> &[&str] {
        &[".claude"]
    }

    fn is_protected(&self, relative: &Path) -> bool {
        relative.components().any(|component| component.as_os_str() == ".claude")
    }

    fn hides_all(&self, directory: &Path) -> bool {
        self.closed.iter().any(|closed| directory.starts_with(closed))
    }

    fn holds(&self, relative: &Path) -> bool {
        self.held.iter().any(|held| relative.starts_with(held)) && !self.is_open(relative)
    }

    fn holds_in(&self, directory: &Path) -> ProtectionExtent {
        if !self.holds(directory) {
            ProtectionExtent::Nothing
        } else if self.open.iter().any(|open| Path::new(open).starts_with(directory)) {
            ProtectionExtent::EverythingBut
        } else {
            ProtectionExtent::Everything
        }
    }

    fn held_while_absent(&self) -> &[PathBuf] {
        &self.absent
    }
}

fn survey(bench: &Bench, rules: &Ruled) -> SurveyedRoot {
    super::super::survey(&bench.root(), rules).unwrap().roots.remove(0)
}

fn paths(list: &[PathBuf]) -> Vec<&str> {
    list.iter().map(|path| path.to_str().unwrap()).collect()
}

#[test]
fn a_held_directory_is_protected_once() {
    let bench = Bench::new();
    bench.write("deploy/a/b", "").write("deploy/c", "").write("src/x", "").write("deploy.txt", "");
    let found = survey(&bench, &Ruled { held: vec!["deploy", "src/x"], ..Ruled::default() });
    assert_eq!(paths(&found.protected), ["deploy", "src/x"]);
    assert_eq!(paths(&found.pins), ["src"], "so that the directory above cannot be moved away");
    assert!(found.read_only.is_empty() && found.open.is_empty() && !found.held);
}

#[test]
fn exceptions_make_it_a_root_of_its_own() {
    let bench = Bench::new();
    bench.write("deploy/open/a", "").write("deploy/one", "").write("deploy/two", "").write("x/deploy/y", "");
    let rules = Ruled { held: vec!["deploy"], open: vec!["deploy/open", "deploy/one"], ..Ruled::default() };
    let found = survey(&bench, &rules);
    assert_eq!(paths(&found.read_only), ["deploy"]);
    assert_eq!(paths(&found.open), ["deploy/one", "deploy/open"], "not what is in an open directory");
    assert!(found.protected.is_empty());
}

#[test]
fn what_is_protected_is_never_open() {
    let bench = Bench::new();
    bench.write("deploy/.claude/settings.json", "").write("deploy/x", "");
    let open = vec!["deploy/.claude/settings.json", "deploy/.claude"];
    let found = survey(&bench, &Ruled { held: vec!["deploy"], open, ..Ruled::default() });
    assert!(found.open.is_empty(), "{:?}", found.open);
    assert_eq!(paths(&found.protected), ["deploy"]);
}

#[test]
fn a_held_root_with_an_open_directory() {
    let bench = Bench::new();
    bench.write("src/main.rs", "").write("src/.env", "").write("README", "").write("src/.claude/x", "");
    let found = survey(&bench, &Ruled { held: vec![""], open: vec!["src"], ..Ruled::default() });
    assert!(found.held);
    assert_eq!(paths(&found.open), ["src"]);
    assert_eq!(paths(&found.masks), ["src/.env"]);
    assert_eq!(paths(&found.protected), ["src/.claude"], "inside what is open, names are protected again");
    assert!(
        found.pins.is_empty(),
        "the open directory is a mount, and above it nothing can be moved: {:?}",
        found.pins
    );
}

#[test]
fn a_closed_directory_is_masked_as_a_whole() {
    let bench = Bench::new();
    bench.write("data/a/secret", "1").write("data/.env", "2").write("data/.claude/x", "").write("else/x", "");
    fs::hard_link(bench.root().join("data/a/secret"), bench.root().join("else/alias")).unwrap();
    let found = survey(&bench, &Ruled { closed: vec!["data"], ..Ruled::default() });
    assert_eq!(paths(&found.masks), ["data", "else/alias"], "and every other name of what is in it");
    assert!(found.protected.is_empty(), "{:?}", found.protected);
}

#[test]
fn a_closed_name_that_is_a_link_closes_what_it_leads_to() {
    let bench = Bench::new();
    bench.write("store/a", "1").link("data", "store");
    let found = survey(&bench, &Ruled { closed: vec!["data"], ..Ruled::default() });
    assert_eq!(paths(&found.masks), ["store"]);
    assert_eq!(paths(&found.protected_links), ["data"]);
}

#[test]
fn held_links_stay_and_hold_what_they_lead_to() {
    let bench = Bench::new();
    bench.write("real/file", "").write("other", "").link("current", "real").link("latest", "other");
    bench.link("loose", "nothing/yet").link("self", ".").link("free", "other");
    let rules = Ruled { held: vec!["current", "latest", "loose", "self"], ..Ruled::default() };
    let found = survey(&bench, &rules);
    assert_eq!(paths(&found.held_links), ["current", "latest", "loose", "self"]);
    assert_eq!(paths(&found.protected), ["other", "real"]);
    let absent: Vec<(&str, PlaceholderKind)> =
        found.absent.iter().map(|absent| (absent.path.to_str().unwrap(), absent.placeholder)).collect();
    assert!(absent.contains(&("nothing", PlaceholderKind::Way)), "{absent:?}");
    assert!(absent.contains(&("nothing/yet", PlaceholderKind::Directory)), "{absent:?}");
}

#[test]
fn free_places_are_held_with_the_way_to_them() {
    let bench = Bench::new();
    bench.write("deploy/x", "").write("real/x", "").link("linked", "real");
    let absent = ["deploy/new/prod.toml", "deploy/x", "linked/free", "top", "deploy/new"].map(PathBuf::from);
    let rules = Ruled { absent: absent[..4].to_vec(), ..Ruled::default() };
    let found = survey(&bench, &rules);
    let free = |found: &SurveyedRoot| -> Vec<(String, PlaceholderKind)> {
        let ours = found.absent.iter().filter(|absent| !absent.path.starts_with(".git"));
        ours.map(|absent| (absent.path.to_str().unwrap().to_owned(), absent.placeholder)).collect()
    };
    let expected = [
        ("deploy/new", PlaceholderKind::Way),
        ("deploy/new/prod.toml", PlaceholderKind::Directory),
        ("real/free", PlaceholderKind::Directory),
        ("top", PlaceholderKind::Directory),
    ];
    assert_eq!(free(&found), expected.map(|(path, placeholder)| (path.to_owned(), placeholder)));
    assert_eq!(paths(&found.held_links), ["linked"], "so that it still leads there");
    assert!(paths(&found.pins).contains(&"deploy/new"));
    let both = survey(&bench, &Ruled { absent: absent.to_vec(), ..Ruled::default() });
    assert!(
        free(&both).contains(&("deploy/new".to_owned(), PlaceholderKind::Directory)),
        "the stricter of the two"
    );
}

#[test]
fn another_name_of_a_held_file_is_held() {
    let bench = Bench::new();
    bench.write("deploy/x", "1").write("a/y", "");
    fs::hard_link(bench.root().join("deploy/x"), bench.root().join("a/alias")).unwrap();
    let found = survey(&bench, &Ruled { held: vec!["deploy"], ..Ruled::default() });
    assert_eq!(paths(&found.protected), ["deploy", "a/alias"]);
}
