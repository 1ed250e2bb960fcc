//! What must come out, for every case in `corpus/`: no false yes, no needless question, and a reason for every no.

#[cfg(test)]
#[path = "../../authz/tests/machine/mod.rs"]
mod machine;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};

    use ringfence_authz::hosts::{HostRule, HostRules, judge_url};
    use ringfence_authz::tools::judge_tool;
    use ringfence_authz::{Action, Judgement, JudgementPart, Policy, RuleSource, judge};
    use ringfence_policy::test_cases::{self, CaseSubject, ExpectedDecision, PolicyCase};
    use ringfence_types::{
        ByteString, Call, Decision, ExecCall, FileCall, NetMode, PolicyLayer, Profile, Refusal, Root,
        StandardInput,
    };

    use crate::machine::{HOME, Machine, WORKSPACE};

    #[test]
    fn every_case_of_the_corpus_comes_out_as_written() {
        let wrong: Vec<String> = all().iter().filter_map(disagreement).collect();
        assert!(wrong.is_empty(), "{} disagree:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn nothing_is_allowed_that_must_not_be() {
        let wrong: Vec<String> = all()
            .iter()
            .filter(|named| {
                named.case.expect != ExpectedDecision::Allow && judged(&named.case).0 == Decision::Allow
            })
            .map(Named::to_string)
            .collect();
        assert!(wrong.is_empty(), "{} false allows:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn every_question_and_every_no_says_by_what_rule_why_and_what_would_change_it() {
        let wrong: Vec<String> = all()
            .iter()
            .filter_map(|named| {
                let missing = unexplained(&named.case);
                (!missing.is_empty()).then(|| format!("{named}: {}", missing.join("; ")))
            })
            .collect();
        assert!(wrong.is_empty(), "{} are not explained:\n{}", wrong.len(), wrong.join("\n"));
    }

    /// The documentation says how many there are.
    #[test]
    fn the_corpus_is_large_and_has_every_kind_of_case() {
        let all = all();
        let count = |expect: ExpectedDecision| all.iter().filter(|named| named.case.expect == expect).count();
        let counts = [
            ExpectedDecision::Allow,
            ExpectedDecision::Ask,
            ExpectedDecision::Deny,
            ExpectedDecision::NotAllow,
        ]
        .map(|expect| (expect.word(), count(expect)));
        println!("{} cases: {counts:?}", all.len());
        assert!(all.len() >= 500, "{}", all.len());
        assert!(count(ExpectedDecision::Allow) >= 300, "{}", count(ExpectedDecision::Allow));
        assert!(count(ExpectedDecision::Ask) >= 100, "{}", count(ExpectedDecision::Ask));
        assert!(count(ExpectedDecision::Deny) + count(ExpectedDecision::NotAllow) >= 500);
        assert!(all.iter().all(|named| named.case.why.is_some()), "every case says why");
    }

    struct Named {
        file: PathBuf,
        case: PolicyCase,
    }

    impl std::fmt::Display for Named {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let file = self.file.file_name().unwrap_or_default().display();
            let profile = self.case.profile.unwrap_or(Profile::Guarded);
            write!(f, "{file}:{} [{profile}] {}", self.case.at.line, self.case.subject)
        }
    }

    fn all() -> Vec<Named> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().flat_map(|file| read(file)).collect()
    }

    fn read(file: &Path) -> Vec<Named> {
        let text = std::fs::read_to_string(file).unwrap();
        let read = test_cases::parse(&text).unwrap_or_else(|error| panic!("{}:{error}", file.display()));
        read.cases.into_iter().map(|case| Named { file: file.to_owned(), case }).collect()
    }

    fn disagreement(named: &Named) -> Option<String> {
        let (decision, by) = judged(&named.case);
        let rule = named.case.rule.as_deref().unwrap_or_default();
        if named.case.expect.accepts(decision) && by.starts_with(rule) {
            return None;
        }
        let mut text = format!("{named}: expected {}", named.case.expect);
        if !rule.is_empty() {
            write!(text, " by {rule}").unwrap();
        }
        write!(text, ", found {decision:?} by {by} ({})", named.case.why.as_deref().unwrap_or_default())
            .unwrap();
        Some(text)
    }

    /// The decision and the rule that made it.
    fn judged(case: &PolicyCase) -> (Decision, String) {
        match judgement(case) {
            Ok(judgement) => {
                let rule = judgement.decisive().map(|part| part.rule.to_string());
                (judgement.decision(), rule.unwrap_or_default())
            }
            Err(refusal) => (Decision::Deny, refusal.rule.into()),
        }
    }

    fn unexplained(case: &PolicyCase) -> Vec<String> {
        match judgement(case) {
            Ok(judgement) => judgement.parts().iter().flat_map(part_gaps).collect(),
            Err(refusal) if refusal.rule.is_empty() || refusal.message.is_empty() => {
                vec!["a refusal without rule or message".to_owned()]
            }
            Err(refusal) => control("message", &refusal.message).into_iter().collect(),
        }
    }

    fn part_gaps(part: &JudgementPart) -> Vec<String> {
        let mut gaps: Vec<String> = control("subject", &part.subject).into_iter().collect();
        gaps.extend(control("reason", &part.reason));
        gaps.extend(part.fix.iter().filter_map(|fix| control("fix", fix)));
        if part.rule.is_empty() {
            gaps.push(format!("no rule for `{}`", part.subject));
        }
        if part.decision != Decision::Allow && part.reason.is_empty() {
            gaps.push(format!("no reason for `{}`", part.subject));
        }
        if part.decision != Decision::Allow && part.fix.as_ref().is_none_or(|fix| fix.is_empty()) {
            gaps.push(format!("no fix for `{}`", part.subject));
        }
        gaps
    }

    fn control(what: &str, text: &str) -> Option<String> {
        let hidden = |c: char| {
            c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        };
        text.contains(hidden).then(|| format!("{what} {text:?} has a control character"))
    }

    fn judgement(case: &PolicyCase) -> Result<Judgement, Refusal> {
        let policy = policy(case);
        let roots = vec![Root { path: ByteString::from(WORKSPACE), access: policy.access }];
        let cwd = case.cwd.as_ref().map_or(Path::new(""), |cwd| cwd.as_path());
        let cwd = Path::new(WORKSPACE).join(cwd);
        let call = match &case.subject {
            CaseSubject::Shell(text) => exec(&["sh", "-c", text].map(ByteString::from), &cwd),
            CaseSubject::Argv(argv) => exec(argv, &cwd),
            CaseSubject::Read(path) => Call::File(FileCall::Read { path: path.clone() }),
            CaseSubject::Write(path) => {
                Call::File(FileCall::Write { path: path.clone(), sha256: String::new(), bytes: 0 })
            }
            CaseSubject::Url { url, method } => {
                return Ok(alone(judge_url(&policy, url.as_bytes(), Some(method))));
            }
            CaseSubject::Tool(name) => return Ok(alone(judge_tool(&policy, name))),
        };
        judge(&policy, &Action::new(call, roots), &Machine)
    }

    fn alone(part: JudgementPart) -> Judgement {
        Judgement::new(vec![part.clone()], part)
    }

    fn policy(case: &PolicyCase) -> Policy {
        let mut policy = Policy::new(case.profile.unwrap_or(Profile::Guarded));
        policy.home = Some(ByteString::from(HOME));
        if !case.allow_hosts.is_empty() {
            policy.net = NetMode::Filtered;
            policy.rules.hosts = HostRules::new(case.allow_hosts.iter().map(|host| allowed(host)).collect());
        }
        policy
    }

    /// As `--allow-host` does it.
    fn allowed(host: &str) -> HostRule {
        HostRule {
            decision: Decision::Allow,
            host: host.parse().unwrap(),
            scheme: None,
            methods: None,
            path_prefix: None,
            inspect: false,
            upgrade: false,
            local: false,
            source: RuleSource { layer: PolicyLayer::Flags, origin: None, reason: None },
        }
    }

    fn exec(argv: &[ByteString], cwd: &Path) -> Call {
        Call::Exec(ExecCall {
            argv: argv.to_vec(),
            cwd: ByteString::from(cwd),
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        })
    }
}
