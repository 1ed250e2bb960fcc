use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::read::DiffProblem;
use super::*;

fn one(diff: &[u8]) -> FileDiff<'_> {
    let mut files = read(diff).unwrap();
    assert_eq!(files.len(), 1);
    files.remove(0)
}

fn why(diff: &[u8]) -> DiffProblem {
    match read(diff) {
        Ok(files) => panic!("taken: {files:?}"),
        Err(error) => error.why,
    }
}

const BASE: &[u8] = b"1\n2\n3\n4\n5\n6\n7\n8\n";

#[test]
fn git_and_plain_diffs_change_what_they_say() {
    let git = b"diff --git a/x b/x\nindex 0123abc..456def0 100644\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@ fn main() {\n-1\n+one\n+more\n 2\n@@ -8 +9 @@\n-8\n+eight\n";
    assert_eq!(one(git).apply(BASE).unwrap(), b"one\nmore\n2\n3\n4\n5\n6\n7\neight\n");
    let plain = b"diff -u x x\n--- x\t2026-01-02 03:04:05.000000000 +0000\n+++ x\t2026-01-02 03:04:06 +0000\n@@ -4,0 +5 @@\n+between\n";
    assert_eq!(one(plain).apply(BASE).unwrap(), b"1\n2\n3\n4\nbetween\n5\n6\n7\n8\n");
    assert_eq!(one(plain).path, ByteString::from("x"));
}

#[test]
fn files_come_and_go() {
    let new = one(b"diff --git a/d/n b/d/n\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/d/n\n@@ -0,0 +1,2 @@\n+a\n+b\n");
    assert_eq!((new.kind, new.path.as_slice()), (DiffKind::Create, &b"d/n"[..]));
    assert_eq!(new.apply(b"").unwrap(), b"a\nb\n");
    let gone = one(b"--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n");
    assert_eq!((gone.kind, gone.path.as_slice()), (DiffKind::Delete, &b"x"[..]));
    assert_eq!(gone.apply(b"a\nb\n").unwrap(), b"");
    assert_eq!(gone.apply(b"a\nb\nc\n"), Err(BaseMismatch::NotEmpty));
    let empty = read(b"diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\ndiff --git a/f b/f\ndeleted file mode 100755\nindex e69de29..0000000\n").unwrap();
    assert_eq!(empty.iter().map(|file| file.kind).collect::<Vec<_>>(), [DiffKind::Create, DiffKind::Delete]);
}

#[test]
fn names_without_prefix_stay_whole() {
    let git = one(b"diff --git b/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n");
    assert_eq!(git.path, ByteString::from("b/x"));
    assert_eq!(one(b"--- b/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n").path, ByteString::from("b/x"));
}

#[test]
fn quoted_names_are_read_as_git_writes_them() {
    let diff = b"diff --git \"a/\\303\\266 \\\"q\\\"\\t\" \"b/\\303\\266 \\\"q\\\"\\t\"\n--- \"a/\\303\\266 \\\"q\\\"\\t\"\n+++ \"b/\\303\\266 \\\"q\\\"\\t\"\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(one(diff).path, ByteString::from("\u{f6} \"q\"\t"));
    let spaces = b"diff --git a/a b.txt b/a b.txt\n--- a/a b.txt\t\n+++ b/a b.txt\t\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(one(spaces).path, ByteString::from("a b.txt"));
    for bad in [&b"\"a/\\400\""[..], b"\"a/\\9\"", b"\"a/x", b"\"a/x\"y", b"\"a/\\12\""] {
        let diff = [b"--- ", bad, b"\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"].concat();
        assert_eq!(why(&diff), DiffProblem::Quoting, "{}", String::from_utf8_lossy(bad));
    }
}

#[test]
fn the_end_of_a_file_and_of_its_lines_is_kept() {
    let lost = one(b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n");
    assert_eq!(lost.apply(b"a\nb\n").unwrap(), b"a\nb");
    assert!(lost.apply(b"a\nb").is_err());
    let gained = one(b"--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b\n");
    assert_eq!(gained.apply(b"a").unwrap(), b"a\nb\n");
    assert!(gained.apply(b"a\n").is_err());
    let crlf = one(b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n");
    assert_eq!(crlf.apply(b"a\r\nb\r\n").unwrap(), b"a\r\nc\r\n");
    assert!(crlf.apply(b"a\nb\n").is_err());
}

/// Where `patch` and `git apply` search for another position, this is an error.
#[test]
fn nothing_is_searched_for() {
    let moved = one(b"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n 5\n-6\n+six\n 7\n");
    assert_eq!(moved.apply(BASE), Err(BaseMismatch::Line { line: 1, at: 4 }));
    let blank = one(b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n 1 \n-2\n+two\n");
    assert!(blank.apply(BASE).is_err());
    let beyond = one(b"--- a/x\n+++ b/x\n@@ -100 +100 @@\n-8\n+eight\n");
    assert!(matches!(beyond.apply(BASE), Err(BaseMismatch::Short { .. })));
    let same = one(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+1\n");
    assert_eq!(same.apply(BASE), Err(BaseMismatch::Nothing));
}

#[test]
fn what_others_skip_is_an_error() {
    let section = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+one\n";
    let cases: &[(String, DiffProblem)] = &[
        (String::new(), DiffProblem::Empty),
        ("hello\n".to_owned(), DiffProblem::NotADiff),
        (format!("From: me\n\n{section}"), DiffProblem::NotADiff),
        (format!("{section}-- \n2.39.5\n"), DiffProblem::NotADiff),
        (format!("{section}\n"), DiffProblem::NotADiff),
        (format!("{section} extra context\n"), DiffProblem::NotADiff),
        ("Only in a: b\n".to_owned(), DiffProblem::NotADiff),
        ("--- a/x\n@@ -1 +1 @@\n-1\n+one\n".to_owned(), DiffProblem::NotADiff),
        ("--- a/x\n+++ b/x\n".to_owned(), DiffProblem::Nothing),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-1\n+one\n".to_owned(), DiffProblem::Nothing),
        ("--- a/x.orig\n+++ b/x\n@@ -1 +1 @@\n-1\n+one\n".to_owned(), DiffProblem::TwoNames),
        (format!("diff --git a/y b/y\n{section}"), DiffProblem::TwoNames),
        (format!("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n{section}"), DiffProblem::Mode),
        (format!("diff --git a/x b/x\nindex 1..2 120000\n{section}"), DiffProblem::Mode),
        (
            "diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n"
                .to_owned(),
            DiffProblem::NewMode("120000".to_owned()),
        ),
        (
            "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n".to_owned(),
            DiffProblem::Rename,
        ),
        ("diff --git a/x b/x\nsimilarity index 100%\n".to_owned(), DiffProblem::Rename),
        ("diff --git a/x b/x\nindex 1..2\n".to_owned(), DiffProblem::Nothing),
        (format!("diff --git a/x b/x\nnew file mode 100644\n{section}"), DiffProblem::Contradiction),
        (format!("diff --git a/x b/x\ndeleted file mode 100644\n{section}"), DiffProblem::Contradiction),
        (
            "diff --git a/x b/x\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n".to_owned(),
            DiffProblem::Binary,
        ),
        ("diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ\n".to_owned(), DiffProblem::Binary),
        ("diff -r a/x b/x\nBinary files a/x and b/x differ\n".to_owned(), DiffProblem::Binary),
        ("Binary files a/x and b/x differ\n".to_owned(), DiffProblem::Binary),
        ("diff --cc x\n--- a/x\n+++ b/x\n@@@ -1 -1 +1 @@@\n".to_owned(), DiffProblem::Combined),
        (format!("{section}{section}"), DiffProblem::Twice(ByteString::from("x"))),
        (format!("{section}@@ -1 +1 @@\n-1\n+one\n"), DiffProblem::HunkOrder),
        (format!("{section}@@ -4 +5 @@\n-4\n+four\n"), DiffProblem::HunkPlace),
        ("--- a/x\n+++ b/x\n@@ -5 +1 @@\n-1\n+one\n".to_owned(), DiffProblem::HunkPlace),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-1\n+one\n".to_owned(), DiffProblem::CutOff),
        (
            "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-1\n+one\n@@ -3 +4 @@\n-3\n+x\n".to_owned(),
            DiffProblem::HunkLength,
        ),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n\n-1\n+one\n".to_owned(), DiffProblem::HunkLength),
        ("--- a/x\n+++ b/x\n@@ -0 +1 @@\n-1\n+one\n".to_owned(), DiffProblem::HunkHeader),
        ("--- a/x\n+++ b/x\n@@ -1,0 +1,0 @@\n".to_owned(), DiffProblem::HunkHeader),
        ("--- a/x\n+++ b/x\n@@ -1,9999999999 +1 @@\n-1\n+one\n".to_owned(), DiffProblem::HunkHeader),
        ("--- a/x\n+++ b/x\n@@ -1,99999999999999999999 +1 @@\n".to_owned(), DiffProblem::HunkHeader),
        ("--- a/x\n+++ b/x\n@@ -1,999999999 +1,999999999 @@\n-1\n+one\n".to_owned(), DiffProblem::CutOff),
        ("--- a/x\n+++ b/x\n@@ --1 +1 @@\n-1\n+one\n".to_owned(), DiffProblem::HunkHeader),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@x\n-1\n+one\n".to_owned(), DiffProblem::HunkHeader),
        (
            "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-1\n\\ No newline at end of file\n+one\n 2\n".to_owned(),
            DiffProblem::NoNewline,
        ),
        (format!("{section}\\ No newline at end of file\n@@ -3 +3 @@\n-3\n+x\n"), DiffProblem::NoNewline),
        ("--- /dev/null\n+++ b/x\n@@ -1 +1,2 @@\n 1\n+one\n".to_owned(), DiffProblem::Contradiction),
        ("--- /dev/null\n+++ b/x\n@@ -4,0 +5 @@\n+one\n".to_owned(), DiffProblem::Contradiction),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+one".to_owned(), DiffProblem::CutOff),
    ];
    for (diff, expected) in cases {
        assert_eq!(&why(diff.as_bytes()), expected, "{diff}");
        assert!(read(diff.as_bytes()).unwrap_err().line > 0);
    }
}

#[test]
fn names_that_lead_elsewhere_are_errors() {
    for name in ["/etc/passwd", "../x", "a/../x", "./x", "a//b", "a/", ".", "..", "a/./b"] {
        let diff = format!("--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b\n");
        let plain = format!("--- {name}\n+++ {name}\n@@ -1 +1 @@\n-a\n+b\n");
        let header = format!("diff --git a/{name} b/{name}\nnew file mode 100644\n");
        for diff in [diff, plain, header] {
            assert!(matches!(why(diff.as_bytes()), DiffProblem::Name { .. }), "{diff}");
        }
    }
    let nul = b"--- \"a/x\\000y\"\n+++ \"b/x\\000y\"\n@@ -1 +1 @@\n-a\n+b\n";
    assert!(matches!(why(nul), DiffProblem::Name { why: "it has a NUL byte", .. }));
    for raw in [&b"x\0y"[..], b"x\r", b"x\x1b[2J"] {
        let diff = [b"--- a/", raw, b"\n+++ b/", raw, b"\n@@ -1 +1 @@\n-a\n+b\n"].concat();
        assert!(matches!(why(&diff), DiffProblem::Name { .. }));
    }
}

#[test]
fn ten_megabytes_are_read_in_no_time() {
    let start = Instant::now();
    let lines = 5_000_000;
    let mut flood = format!("--- /dev/null\n+++ b/x\n@@ -0,0 +1,{lines} @@\n").into_bytes();
    flood.extend(b"+\n".repeat(lines));
    assert_eq!(one(&flood).apply(b"").unwrap().len(), lines);
    let hunks = b"@@ -1 +1 @@\n-a\n+b\n".repeat(500_000);
    assert_eq!(why(&[b"--- a/x\n+++ b/x\n", hunks.as_slice()].concat()), DiffProblem::HunkOrder);
    let mut sections = Vec::new();
    for number in 0..200_000 {
        sections.extend_from_slice(
            format!("diff --git a/{number} b/{number}\nnew file mode 100644\n").as_bytes(),
        );
    }
    assert_eq!(why(&sections), DiffProblem::TooMany);
    assert_eq!(why(&b"\\".repeat(10_000_000)), DiffProblem::CutOff);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn git_writes_the_same_diff() {
    let base = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";
    let result = b"1\n2\n3\nfour\n5\n6\n7\n8\n9\n10\n11\n12\nend";
    let expected = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,7 +1,7 @@\n 1\n 2\n 3\n-4\n+four\n 5\n 6\n 7\n@@ -10,3 +10,4 @@\n 10\n 11\n 12\n+end\n\\ No newline at end of file\n";
    assert_eq!(String::from_utf8(write(&ByteString::from("x"), Some(base), Some(result))).unwrap(), expected);
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just(b"same\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"crlf\r\n".to_vec()),
        Just(b"-- \n".to_vec()),
        Just(b"+++ b/x\n".to_vec()),
        Just(b"@@ -1 +1 @@\n".to_vec()),
        Just(b"\\ No newline at end of file\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(line, 0..30).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_to_the_byte(base in content(), result in content(), name in "[a-z\u{f6}\"\\\\ \t\n]{1,8}") {
        let path = ByteString::from(name.as_str());
        if base != result {
            let diff = write(&path, Some(&base), Some(&result));
            let file = one(&diff);
            prop_assert_eq!(&file.path, &path);
            prop_assert_eq!(file.kind, DiffKind::Modify);
            prop_assert_eq!(file.apply(&base).unwrap(), result.clone());
            if !base.is_empty() {
                prop_assert!(file.apply(b"something else\n").is_err());
            }
        }
        let created = write(&path, None, Some(&result));
        prop_assert_eq!(one(&created).apply(b"").unwrap(), result.clone());
        let deleted = write(&path, Some(&base), None);
        prop_assert_eq!(one(&deleted).apply(&base).unwrap(), b"");
        prop_assert_eq!(one(&deleted).kind, DiffKind::Delete);
        let both = [created, write(&ByteString::from("other/file"), None, Some(&base))].concat();
        prop_assert_eq!(read(&both).unwrap().len(), 2);
    }

    #[test]
    fn damaged_diffs_never_panic(base in content(), result in content(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut diff = write(&ByteString::from("x"), Some(&base), Some(&result));
        let index = at.index(diff.len());
        diff[index] = byte;
        if let Ok(files) = read(&diff) {
            for file in files {
                let _any = file.apply(&base);
            }
        }
        diff.truncate(cut.index(diff.len()));
        let _any = read(&diff);
    }
}
