use super::*;

const WRITTEN_BY_HAND: &str = "\
# my policy
profile = \"guarded\"   # for now

[[command]] # tests
allow = \"npm test\"

[workspaces.\"/home/ann/web\"] # the shop
limits.memory = \"2g\"   

[[path]]
deny    =   [ \"*.bin\", ]
";

#[test]
fn a_digest_is_approved_once() {
    let digest = sha256(b"x");
    let other = sha256(b"y");
    let path = Path::new(WORKSPACE);
    let one = with_approved(WRITTEN_BY_HAND, path, &digest).unwrap();
    assert!(one.contains("# the shop") && one.contains("limits.memory = \"2g\"   "), "{one}");
    assert_eq!(with_approved(&one, path, &digest).unwrap(), one);
    let two = with_approved(&one, path, &other).unwrap();
    assert!(two.contains(&format!("approved_digests = [\"{digest}\", \"{other}\"]")), "{two}");
    let single = format!("[workspaces.\"/new\"]\napproved_digests = \"{digest}\"\n");
    assert!(with_approved(&single, Path::new("/new"), &other).unwrap().contains(&other));
    let fresh = with_approved("", path, &digest).unwrap();
    assert_eq!(fresh, format!("[workspaces.\"{WORKSPACE}\"]\napproved_digests = [\"{digest}\"]\n"));
    for text in [one, two, fresh] {
        assert!(operator(&text).is_ok(), "{text}");
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let digest = sha256(b"x");
    for (text, expected) in [
        ("profile = 1", "the file has mistakes"),
        ("not toml", "the file has mistakes"),
        ("workspaces = {}", "`workspaces` is written inline"),
    ] {
        let error = with_approved(text, Path::new(WORKSPACE), &digest).unwrap_err();
        assert!(error.to_string().contains(expected) && !error.fix().is_empty(), "{error}");
    }
    use std::os::unix::ffi::OsStrExt as _;
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"/w\xff"));
    assert!(matches!(with_approved("", odd, &digest), Err(PolicyWriteError::Unwritable(_))));
    assert!(matches!(with_approved("", Path::new("/w"), "123"), Err(PolicyWriteError::Digest(_))));
}
