//! Files of a git directory that are trusted for their content: what is honest stays, anything else is held.

use super::*;

/// The names in a directory that were held.
fn held(tree: &Tree) -> Vec<String> {
    let changes = tree.clear();
    let name =
        |change: &HeldChange| change.path.as_path().file_name().unwrap().to_string_lossy().into_owned();
    changes.iter().map(name).collect()
}

#[test]
fn a_server_and_its_process_id_are_held() {
    let tree = Tree::new();
    let git = tree.repository("a/.git");
    fs::create_dir(git.join("gitweb")).unwrap();
    fs::write(git.join("pid"), "1234\n").unwrap();
    assert_eq!(held(&tree), Vec::<String>::new(), "control");
    for name in ["lighttpd.conf", "webrick.rb", "httpd"] {
        fs::write(git.join("gitweb").join(name), "x").unwrap();
    }
    fs::write(git.join("pid"), "-l\n").unwrap();
    assert_eq!(held(&tree), ["pid", "httpd", "lighttpd.conf", "webrick.rb"].map(String::from).to_vec());
}

/// `git subtree` up to 2.45 lets a command choose the directory of its cache, which a `commondir` can name.
#[test]
fn a_directory_in_a_repository_is_one_without_a_head_too() {
    let tree = Tree::new();
    let git = tree.repository("a/.git");
    let bare = tree.repository("b.git");
    for inner in [git.join("subtree-cache/1"), bare.join("inner"), tree.root.join("work")] {
        for directory in ["objects", "refs"] {
            fs::create_dir_all(inner.join(directory)).unwrap();
        }
        fs::write(inner.join("config"), EVIL).unwrap();
    }
    fs::create_dir_all(git.join("other")).unwrap();
    fs::write(git.join("other/config"), EVIL).unwrap();
    assert_eq!(held(&tree), ["config", "config"].map(String::from).to_vec());
    for whole in [git.join("other/config"), tree.root.join("work/config")] {
        assert_eq!(fs::read_to_string(&whole).unwrap(), EVIL, "{whole:?}");
    }
}

#[test]
fn commits_of_a_rebase_are_names() {
    let tree = Tree::new();
    let rebase = tree.repository("a/.git").join("rebase-merge");
    fs::create_dir(&rebase).unwrap();
    let name = "0123456789abcdef0123456789abcdef01234567\n";
    for file in ["cmt.1", "cmt.12", "current"] {
        fs::write(rebase.join(file), name).unwrap();
    }
    assert_eq!(held(&tree), Vec::<String>::new(), "control");
    fs::write(rebase.join("cmt.12"), "x;touch mark;\n").unwrap();
    fs::write(rebase.join("current"), "x=;touch mark\n").unwrap();
    assert_eq!(held(&tree), ["cmt.12", "current"].map(String::from).to_vec());
}

#[test]
fn a_pickled_histedit_is_held() {
    let tree = Tree::new();
    for system in [".hg", ".sl"] {
        fs::create_dir_all(tree.root.join("a").join(system)).unwrap();
        fs::write(tree.root.join("a").join(system).join("histedit-state"), "v1\n0123\n").unwrap();
    }
    assert_eq!(held(&tree), Vec::<String>::new(), "control");
    for system in [".hg", ".sl"] {
        fs::write(tree.root.join("a").join(system).join("histedit-state"), "cos\nsystem\n(S'x'\ntR.")
            .unwrap();
    }
    assert_eq!(held(&tree), ["histedit-state", "histedit-state"].map(String::from).to_vec());
}

/// Git refuses a repository that says so, and a reader that does not takes another length for the names of objects.
#[test]
fn long_names_of_objects_need_a_version() {
    let tree = Tree::new();
    let git = tree.repository("a/.git");
    let index = [&b"DIRC\0\0\0\x02\0\0\0\0"[..], &[0; 32]].concat();
    let config = |version: &str| {
        format!("[core]\n\trepositoryformatversion = {version}\n[extensions]\n\tobjectFormat = sha256\n")
    };
    fs::write(git.join("config"), config("1")).unwrap();
    fs::write(git.join("index"), &index).unwrap();
    assert_eq!(held(&tree), Vec::<String>::new(), "control");
    for text in [config("0"), config("1").replace("1\n", "1\n\trepositoryformatversion = 0\n")] {
        fs::write(git.join("config"), text).unwrap();
        fs::write(git.join("index"), &index).unwrap();
        assert_eq!(held(&tree), ["index"].map(String::from).to_vec());
    }
}

/// Git up to 2.39 takes `..` for the name before it.
#[test]
fn a_store_of_objects_is_in_a_root_by_its_text_too() {
    let tree = Tree::new();
    let out = tempfile::tempdir().unwrap();
    let git = tree.repository("a/.git");
    fs::create_dir_all(git.join("objects/info")).unwrap();
    fs::create_dir_all(tree.root.join("b/c/d")).unwrap();
    let alternates = git.join("objects/info/alternates");
    fs::write(&alternates, "../../../b/c\n").unwrap();
    assert_eq!(held(&tree), Vec::<String>::new(), "control");
    // By its text it leads to a place beside the root, and really to one in it.
    let deep = tree.root.join("1/2/3/4/5/6/7/8");
    fs::create_dir_all(&deep).unwrap();
    symlink(&deep, tree.root.join("l")).unwrap();
    let up = "../".repeat(tree.root.components().count() - 1);
    let beside = out.path().strip_prefix("/").unwrap();
    fs::write(&alternates, format!("{}/l/../{up}{}\n", tree.root.display(), beside.display())).unwrap();
    assert_eq!(held(&tree), ["alternates"].map(String::from).to_vec());
}
