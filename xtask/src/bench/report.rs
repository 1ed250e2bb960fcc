//! Tables for people, JSON for machines, and each target with what was measured.

use serde_json::{Value, json};

use super::measure::Times;

#[derive(Default)]
pub(super) struct Report {
    tables: Vec<Value>,
    targets: Vec<Target>,
}

struct Target {
    name: String,
    measured: f64,
    bound: Bound,
    unit: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn holds(self, measured: f64) -> bool {
        match self {
            Self::AtMost(limit) => measured <= limit,
            Self::AtLeast(limit) => measured >= limit,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {limit:.2}"),
            Self::AtLeast(limit) => format!(">= {limit:.2}"),
        }
    }
}

impl Report {
    /// Prints the times with their ratio to each of `yardsticks`.
    pub(super) fn table(&mut self, title: &str, times: &[Times], yardsticks: &[&str]) {
        let columns: Vec<&Times> =
            yardsticks.iter().filter_map(|name| times.iter().find(|times| times.name == *name)).collect();
        print!("\n{title}\n{:<34} {:>10} {:>10} {:>5}", "", "median ms", "p99 ms", "n");
        columns.iter().for_each(|column| print!(" {:>16}", format!("/ {}", column.name)));
        println!();
        for row in times {
            print!("{:<34} {:>10.3} {:>10.3} {:>5}", row.name, row.median(), row.p99(), row.count());
            columns.iter().for_each(|column| print!(" {:>16.2}", row.median() / column.median()));
            println!();
        }
        self.tables.push(json!({ "title": title, "rows": times.iter().map(|t| row_json(t, &columns)).collect::<Vec<_>>() }));
    }

    pub(super) fn target(&mut self, name: &str, measured: f64, bound: Bound, unit: &'static str) {
        self.targets.push(Target { name: name.into(), measured, bound, unit });
    }

    pub(super) fn print_targets(&self) {
        println!("\n{:<62} {:>10} {:>12}", "target", "measured", "limit");
        for target in &self.targets {
            let verdict = if target.bound.holds(target.measured) { "PASS" } else { "MISS" };
            let limit = target.bound.shown();
            println!(
                "{:<62} {:>10.2} {limit:>12} {:<5} {verdict}",
                target.name, target.measured, target.unit
            );
        }
    }

    pub(super) fn missed(&self) -> usize {
        self.targets.iter().filter(|target| !target.bound.holds(target.measured)).count()
    }

    pub(super) fn to_json(&self) -> Value {
        let targets: Vec<Value> = self
            .targets
            .iter()
            .map(|target| {
                json!({
                    "name": target.name, "measured": target.measured, "limit": target.bound.shown(),
                    "unit": target.unit, "pass": target.bound.holds(target.measured),
                })
            })
            .collect();
        json!({ "version": 1, "tables": self.tables, "targets": targets })
    }
}

fn row_json(times: &Times, columns: &[&Times]) -> Value {
    let ratios: serde_json::Map<String, Value> =
        columns.iter().map(|column| (column.name.clone(), json!(times.median() / column.median()))).collect();
    json!({ "name": times.name, "median_ms": times.median(), "p99_ms": times.p99(), "n": times.count(), "ratio": ratios })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_recorded_and_counted() {
        let mut report = Report::default();
        report.target("fast", 2.0, Bound::AtMost(1.0), "ms");
        report.target("many", 2.0, Bound::AtLeast(1.0), "/s");
        report.target("unknown", f64::NAN, Bound::AtMost(1.0), "ms");
        assert_eq!(report.missed(), 2);
        let json = report.to_json();
        let passes: Vec<&Value> = json["targets"].as_array().unwrap().iter().map(|t| &t["pass"]).collect();
        assert_eq!(passes, [&json!(false), &json!(true), &json!(false)]);
    }
}
