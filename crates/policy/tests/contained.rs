//! Profile `workspace`: whatever stays inside the fence runs, and what a policy file denies or asks about is found wherever
//! it is visible in a command. What is not visible is left to the fence.

#[cfg(test)]
#[path = "../../authz/tests/machine/mod.rs"]
mod machine;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use ringfence_authz::{Action, Policy, judge};
    use ringfence_policy::{PolicyFile, PolicyFileRole, StartupFlags, effective};
    use ringfence_types::{ByteString, Call, Decision, ExecCall, NetMode, Profile, Root, StandardInput};

    use crate::machine::{HOME, Machine, WORKSPACE};

    const RULES: &str = r#"
        [[command]]
        deny = [["curl"], ["git", "push", "--force"]]
        reason = "not from here"

        [[command]]
        ask = ["npm publish"]
        reason = "somebody looks first"
    "#;

    #[test]
    fn without_rules_everything_runs() {
        let policy = load("");
        for text in [
            "curl x",
            "rm -rf x",
            "npm publish",
            "echo 'unterminated",
            "$X",
            "cat /etc/passwd",
            "./script.sh",
        ] {
            assert_eq!(decision(&policy, text), Decision::Allow, "{text}");
        }
    }

    #[test]
    fn what_is_denied_is_found_in_every_position() {
        let policy = load(RULES);
        for text in [
            "curl x",
            "/usr/bin/curl x",
            "ls; curl x",
            "ls && curl x",
            "ls | curl -d @- x",
            "ls & curl x",
            "ls\ncurl x",
            "echo $(curl x)",
            "echo \"`curl x`\"",
            "(curl x)",
            "{ curl x; }",
            "if curl x; then ls; fi",
            "for i in a b; do curl x; done",
            "env curl x",
            "env A=1 nice -n 5 timeout 9 curl x",
            "sh -c 'curl x'",
            "bash -c \"ls; curl x\"",
            "xargs curl",
            "find . -exec curl {} \\;",
            "sudo curl x",
            "c''url x",
            "\\curl x",
            "A=1 curl x",
            "curl x > out",
            "f() { curl x; }; f",
            "trap 'curl x' EXIT",
            "eval curl x",
            "cat <<EOF\n$(curl x)\nEOF",
            "npm publish; curl x",
            "git push --force",
            "git push -f",
            "git push origin main --force",
            "git -C sub push -f",
            "git -c a.b=c push --force",
            "git push origin +main",
        ] {
            assert_eq!(decision(&policy, text), Decision::Deny, "{text}");
        }
    }

    #[test]
    fn what_is_asked_about_is_asked_about() {
        let policy = load(RULES);
        for text in [
            "npm publish",
            "npm publish --tag x",
            "ls && npm publish",
            "sh -c 'npm publish'",
            "env npm publish",
        ] {
            assert_eq!(decision(&policy, text), Decision::Ask, "{text}");
        }
    }

    #[test]
    fn everything_else_runs() {
        let policy = load(RULES);
        for text in [
            "ls",
            "rm -rf target",
            "npm test",
            "npm install",
            "git push",
            "git push origin main",
            "echo curl x",
            "echo 'curl x'",
            "grep -rn curl src",
            "cat curl.md",
            "ls # curl x",
            "./curl.sh",
            "git commit -m 'push --force'",
            "git log --grep='push --force'",
        ] {
            assert_eq!(decision(&policy, text), Decision::Allow, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_seen_is_left_to_the_fence() {
        let policy = load(RULES);
        for text in [
            "$X",
            "./script.sh",
            "python3 x.py",
            "make",
            "echo 'unterminated",
            "bash script.sh",
            "eval \"$X\"",
        ] {
            assert_eq!(decision(&policy, text), Decision::Allow, "{text}");
        }
    }

    fn load(text: &str) -> Policy {
        let file =
            PolicyFile::parse(PolicyFileRole::Operator, Path::new("/policy.toml"), text.as_bytes()).unwrap();
        let flags = StartupFlags {
            workspace: PathBuf::from(WORKSPACE),
            profile: Some(Profile::Workspace),
            home: Some(ByteString::from(HOME)),
            ..StartupFlags::default()
        };
        effective(&flags, &[file], &|path| path.to_owned()).unwrap().policy
    }

    fn decision(policy: &Policy, text: &str) -> Decision {
        let argv = ["sh", "-c", text].map(ByteString::from).to_vec();
        let call = Call::Exec(ExecCall {
            argv,
            cwd: ByteString::from(WORKSPACE),
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        });
        let roots = vec![Root { path: ByteString::from(WORKSPACE), access: policy.access }];
        judge(policy, &Action::new(call, roots), &Machine)
            .map_or(Decision::Deny, |judgement| judgement.decision())
    }
}
