//! Shows a change as a diff. The insertion is in one place, so one hunk holds it.

const AROUND: usize = 3;

pub(super) fn unified(path: &str, before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - same;
    let end = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let start = same.saturating_sub(AROUND);
    let tail = end.min(AROUND);
    let part = |lines: &[&str], from: usize, to: usize, mark: char| -> String {
        let chosen = lines.iter().take(to).skip(from);
        chosen.map(|line| format!("{mark}{}\n", ringfence_types::ByteString::from(*line).display())).collect()
    };
    let counts = |lines: &[&str]| lines.len() - end + tail - start;
    format!(
        "--- {path}\n+++ {path}\n@@ -{},{} +{},{} @@\n{}{}{}{}",
        start + 1,
        counts(&old),
        start + 1,
        counts(&new),
        part(&old, start, same, ' '),
        part(&old, same, old.len() - end, '-'),
        part(&new, same, new.len() - end, '+'),
        part(&old, old.len() - end, old.len() - end + tail, ' '),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hunk_holds_the_change_and_what_is_around_it() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n";
        let after = "1\n2\n3\n4\nx\n6\n7\n8\n";
        let text = "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n";
        assert_eq!(unified("f", before, after), text);
        assert_eq!(unified("f", "", "a\n"), "--- f\n+++ f\n@@ -1,0 +1,1 @@\n+a\n");
        assert_eq!(unified("f", "a\na\n", "a\n"), "--- f\n+++ f\n@@ -1,2 +1,1 @@\n a\n-a\n");
    }
}
