//! The numbers that stand, and that only fall.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Result;

const FILE: &str = "xtask/names-baseline.toml";
const HEAD: &str = "# What `cargo xtask names` still finds, by rule and crate. A number may fall and never rise:\n# `cargo xtask names --lower` writes what there is now. `homonym-share` is in thousandths.\n";

/// Rule, crate, number.
pub(super) type Counts = BTreeMap<String, BTreeMap<String, usize>>;

pub(super) struct Baseline(Counts);

impl Baseline {
    pub(super) fn read(root: &Path) -> Result<Self> {
        Self::parse(&fs::read_to_string(root.join(FILE))?)
    }

    fn parse(text: &str) -> Result<Self> {
        Ok(Self(toml::from_str(text).map_err(|error| format!("{FILE}: {error}"))?))
    }

    /// What is more than it was.
    pub(super) fn risen(&self, counts: &Counts) -> Vec<String> {
        let mut violations = Vec::new();
        for (rule, crates) in counts {
            for (krate, now) in crates {
                let stands = self.of(rule, krate);
                if *now > stands {
                    violations
                        .push(format!("{rule}: {krate} has {now}, and {stands} in {FILE}, which only falls"));
                } else if *now < stands {
                    println!(
                        "names: {rule}: {krate} has {now} instead of {stands}: `cargo xtask names --lower` holds it"
                    );
                }
            }
        }
        violations
    }

    /// The lower number of both; a rule that the file does not know yet begins with what there is.
    pub(super) fn lowered_to(&self, counts: &Counts) -> Self {
        // A rule without findings keeps its heading: with it, no number is the number zero.
        let mut lowered: Counts = self.0.keys().map(|rule| (rule.clone(), BTreeMap::new())).collect();
        for (rule, crates) in counts {
            let first = !self.0.contains_key(rule);
            let least = |krate: &str, now: usize| if first { now } else { self.of(rule, krate).min(now) };
            let lines = crates.iter().map(|(krate, now)| (krate.clone(), least(krate, *now)));
            lowered.entry(rule.clone()).or_default().extend(lines.filter(|(_, least)| *least > 0));
        }
        Self(lowered)
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        Ok(fs::write(root.join(FILE), self.text())?)
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (rule, crates) in &self.0 {
            text.push_str(&format!("\n[{rule}]\n"));
            text.extend(crates.iter().map(|(krate, count)| format!("{krate} = {count}\n")));
        }
        text
    }

    fn of(&self, rule: &str, krate: &str) -> usize {
        self.0.get(rule).and_then(|crates| crates.get(krate)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(list: &[(&str, &str, usize)]) -> Counts {
        let mut counts = Counts::new();
        for (rule, krate, count) in list {
            counts.entry((*rule).to_owned()).or_default().insert((*krate).to_owned(), *count);
        }
        counts
    }

    #[test]
    fn a_number_may_fall_and_never_rise() {
        let baseline = Baseline::parse("[participle]\ncli = 2\n").unwrap();
        assert_eq!(baseline.risen(&counts(&[("participle", "cli", 2)])), Vec::<String>::new());
        assert_eq!(baseline.risen(&counts(&[("participle", "cli", 1)])), Vec::<String>::new());
        assert_eq!(baseline.risen(&counts(&[("participle", "cli", 3)])).len(), 1);
        assert_eq!(
            baseline.risen(&counts(&[("participle", "web", 1)])).len(),
            1,
            "a crate without a line has none"
        );
    }

    #[test]
    fn lowering_takes_the_lower_number_and_drops_what_is_mended() {
        let baseline = Baseline::parse("[participle]\ncli = 2\nweb = 1\n").unwrap();
        let lowered =
            baseline.lowered_to(&counts(&[("participle", "cli", 5), ("tuple-parameter", "web", 3)]));
        assert_eq!(lowered.0, counts(&[("participle", "cli", 2), ("tuple-parameter", "web", 3)]));
        assert_eq!(Baseline::parse(&lowered.text()).unwrap().0, lowered.0);
        let mended = baseline.lowered_to(&Counts::new());
        let again = mended.lowered_to(&counts(&[("participle", "cli", 1)]));
        assert!(again.0["participle"].is_empty(), "what is mended does not come back");
    }
}
