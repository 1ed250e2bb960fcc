use super::*;

#[test]
fn s001_20_listed_git_is_quiet() {
    Bench::guarded().lines(
        ALLOW,
        &[
            "git status",
            "git status -sb",
            "git status --porcelain=v2 --branch",
            "git status -uno src",
            "git diff",
            "git diff --stat HEAD~1",
            "git diff --cached -- src",
            "git diff main...HEAD --name-only",
            "git diff -U5 a.rs",
            "git diff -w --word-diff=color HEAD^ HEAD -- src/lib.rs",
            "git log --oneline -5",
            "git log -n 3 --graph --all --decorate",
            "git log -p --follow src/lib.rs",
            "git log --since=yesterday --author=me --format=%h%x09%s",
            "git log -L 1,20:src/lib.rs",
            "git log main..feature/x",
            "git log -S foo -- src",
            "git show",
            "git show HEAD",
            "git show HEAD~2:src/lib.rs",
            "git show --stat abc123",
            "git rev-parse HEAD",
            "git rev-parse --abbrev-ref HEAD",
            "git rev-parse --show-toplevel",
            "git rev-parse --short HEAD",
            "git grep -n foo",
            "git grep -e foo --and -e bar -- *.rs",
            "git grep foo HEAD -- src",
            "git branch",
            "git branch -a",
            "git branch -vv",
            "git branch --list x*",
            "git branch --show-current",
            "git branch --contains HEAD",
            "git branch --merged main",
            "git branch -r --sort=-committerdate --format=%(refname)",
            "git --no-pager log -1",
            "git -P diff",
            "git -C src status",
            "git -C /w/src log",
            "git --no-optional-locks status",
            "git diff -- . :!Cargo.lock",
            "git diff -- . :(exclude).env",
        ],
    );
}

#[test]
fn a_1_b_c25_git_that_acts_is_asked_about() {
    let bench = Bench::guarded();
    bench.lines(
        ASK,
        &[
            "git grep -Ocat x",
            "git grep -O x",
            "git grep -nO./x x",
            "git grep --open-files-in-pager=sh x",
            "git grep --open-files=sh x",
            "git grep --textconv x",
            "git grep --recurse-submodules x",
            "git grep --no-index x",
            "git diff --output=x",
            "git diff --output x",
            "git diff --outpu=x",
            "git log --output=x",
            "git show --output=x",
            "git diff --ext-diff",
            "git log --ext-diff -p",
            "git diff --textconv",
            "git diff --no-index a b",
            "git diff --submodule=diff",
            "git log --show-signature",
            "git log --format=%G?",
            "git log --pretty=format:%GS",
            "git branch new",
            "git branch -v new",
            "git branch -D main",
            "git branch -d main",
            "git branch -m a b",
            "git branch -c a b",
            "git branch -f main HEAD~1",
            "git branch -u origin/main",
            "git branch --set-upstream-to=x",
            "git branch --edit-description",
            "git branch --dele x",
            "git -c core.pager=./x log",
            "git -c core.fsmonitor=./x status",
            "git -calias.x=!sh x",
            "git --config-env=core.pager=X log",
            "git --exec-path=./x status",
            "git -p status",
            "git --paginate log",
            "git --git-dir=x status",
            "git --git-dir x status",
            "git --work-tree=x status",
            "git --namespace=x status",
            "git rev-parse --parseopt",
            "git rev-parse --resolve-git-dir x",
            "git status --frobnicate",
            "git status --help",
            "git log --stdin",
            "git diff -U --output=x",
            "git status -M --frob",
        ],
    );
    assert_eq!(rule(&bench.line("git diff --output=x")), "option.git-diff");
    assert_eq!(rule(&bench.line("git -c a=b log")), "option.git");
}

#[test]
fn paths_of_git_are_judged_in_every_form() {
    let bench = Bench::guarded();
    bench.lines(
        DENY,
        &[
            "git diff --no-index /dev/null /etc/passwd",
            "git diff /etc/passwd a",
            "git diff ../x",
            "git diff --output=/etc/cron.d/x",
            "git log --output=/home/u/.ssh/authorized_keys",
            "git -C .. status",
            "git -C /etc status",
            "git -C src -C ../.. status",
            "git -C outside status",
            "git show HEAD:.env",
            "git show :.env",
            "git show :0:.env",
            "git show main:sub/.env.local",
            "git show HEAD:./.env",
            "git diff -- .env",
            "git diff HEAD -- sub/.env",
            "git log -p .env",
            "git log -p -- .env",
            "git log -L1,5:.env",
            "git log -L :fn:.env",
            "git grep x -- .env",
            "git grep x HEAD:.env",
            "git grep -f /etc/passwd",
            "git diff -- :(top).env",
            "git diff -- :/.env",
            "git diff -- .env*",
            "git log -p -- **/*.key",
            "git diff -O/etc/passwd",
            "git show HEAD:id_rsa",
            "git show HEAD@{12:30}:id_rsa",
            "git show :/fix:.env",
            "git add /etc/passwd",
        ],
    );
}

#[test]
fn s000_21_blocked_forms_in_every_spelling() {
    let mut bench = Bench::guarded();
    bench.policy.net = NetMode::Full;
    for (name, lines) in [
        (
            "git.push-force",
            &[
                "git push --force",
                "git push -f",
                "git push -uf origin main",
                "git push origin main --force",
                "git push --forc",
                "git push --force-with-lease",
                "git push --force-with-lease=main:abc origin",
                "git push origin +main",
                "git push origin +HEAD:main",
                "git push --mirror x",
                "git -C src push -f",
                "git --no-pager push --force",
                "git -c a=b push --force",
                "git-push --force",
            ][..],
        ),
        (
            "git.reset-hard",
            &[
                "git reset --hard",
                "git reset --hard HEAD~1",
                "git reset HEAD~1 --hard",
                "git reset --har",
                "git -C src reset -q --hard",
            ],
        ),
        (
            "git.clean-force",
            &[
                "git clean -fd",
                "git clean -df",
                "git clean -f -d",
                "git clean -xdf",
                "git clean --force -d",
                "git clean -d --forc x",
            ],
        ),
    ] {
        for line in lines {
            let parts = bench.line(line);
            check(line, &parts, DENY);
            assert_eq!(rule(&parts), name, "{line}");
        }
    }
    bench.lines(
        ASK,
        &[
            "git push",
            "git push origin main",
            "git push --follow-tags",
            "git reset",
            "git reset --soft HEAD~1",
            "git clean -n",
        ],
    );
}

#[test]
fn b_c25_settings_of_the_repository_count() {
    let mut bench = Bench::guarded();
    bench.facts.git_programs = vec!["core.fsmonitor".to_owned()];
    let parts = bench.line("git status");
    check("git status", &parts, ASK);
    assert_eq!(rule(&parts), "git.config");
    assert!(decisive(&parts).reason.contains("core.fsmonitor"));
    bench.lines(ASK, &["git diff", "git log", "git branch"]);
    bench.lines(DENY, &["git show HEAD:.env"]);
    bench.lines(ALLOW, &["ls"]);
}

#[test]
fn git_without_its_surroundings_is_asked_about() {
    let bench = Bench::guarded();
    bench.lines(ASK, &["env -i git status", "env - git status", "env -u GIT_CONFIG_COUNT git status"]);
    bench.lines(ALLOW, &["env -i ls", "env -u FOO git status", "env git status"]);
    bench.scripts(ASK, &["exec -c git status", "unset GIT_CONFIG_COUNT; git status"]);
}

#[test]
fn a_branch_named_like_a_secret_is_no_file() {
    let mut bench = Bench::guarded();
    bench.facts.missing = vec!["/w/fix-password", "/w/feature/secret"];
    bench.lines(ALLOW, &["git log fix-password", "git diff main feature/secret"]);
    bench.lines(ASK, &["git log -p -- fix-password"]);
}

#[test]
fn what_a_commit_or_a_pattern_holds_does_not_depend_on_what_is_there_now() {
    let mut bench = Bench::guarded();
    bench.lines(DENY, &["git show HEAD:tls/server.pem", "git log -p -- *.pem"]);
    bench.facts.missing = vec!["/w/tls/server.pem", "/w/.pem"];
    bench.lines(ALLOW, &["cat tls/server.pem"]);
    bench.lines(ASK, &["git show HEAD:tls/server.pem", "git log -p -- *.pem"]);
    bench.scripts(ASK, &["cat *.pem"]);
}

#[test]
fn git_prints_no_tracked_file_that_must_not_be_read() {
    let mut bench = Bench::guarded();
    bench.facts.directories = vec!["/w/secrets", "/w/src", "/w/conf"];
    bench.facts.missing = vec!["/w/HEAD", "/w/x", "/w/abc123", "/w/main", "/w/HEAD@{12:30}", "/w/HEAD~1"];
    let quiet = ["git log -p -- conf", "git grep x HEAD -- src", "git show HEAD", "git diff", "git log -p"];
    bench.lines(ALLOW, &quiet);
    bench.facts.tracked = vec!["/w/src/lib.rs", "/w/conf/.env", "/w/secrets/db.key", "/w/readme"];
    bench.lines(
        DENY,
        &[
            "git log -p -- secrets",
            "git log -u -- secrets/",
            "git log -Up3 -- conf",
            "git log --patch -- conf",
            "git log --word-diff -- conf",
            "git log --pat -- conf",
            "git grep x HEAD -- secrets",
            "git grep --cached x -- conf",
            "git grep -e x HEAD -- conf",
            "git diff HEAD~1 -- conf",
            "git show HEAD -- secrets",
            "git diff conf",
        ],
    );
    bench.lines(
        ASK,
        &[
            "git log -p",
            "git log -wp",
            "git log -p -- .",
            "git diff",
            "git diff main",
            "git show",
            "git show abc123",
            "git show HEAD@{12:30}",
            "git grep x HEAD",
            "git diff --stat -p",
            "git grep readme HEAD",
            "git log -p readme --",
            // Ranges that begin like a file of a commit.
            "git show HEAD:..HEAD",
            "git show HEAD:readme..HEAD",
            "git show :readme..HEAD",
            // Words that git takes for revisions although files have these names.
            "git log -p HEAD^@",
            "git log -p ^readme",
        ],
    );
    bench.lines(
        ALLOW,
        &[
            "git log",
            "git log --stat -- secrets",
            "git log -p -- src",
            "git diff -- src readme",
            "git diff --stat",
            "git diff --name-only main",
            "git show HEAD:src/lib.rs",
            "git grep x",
            "git grep x HEAD -- src",
            "git diff -- . :!secrets :!conf",
            "git log -p -- . :(exclude)secrets :^conf/.env",
            "git status",
        ],
    );
    let contained = Bench::new(Profile::Workspace);
    contained.lines(ALLOW, &["git log -p"]);
}

#[test]
fn a_pathspec_that_is_not_plain_limits_nothing() {
    let mut bench = Bench::guarded();
    bench.facts.missing = vec!["/w/HEAD", "/w/HEAD~1"];
    bench.facts.tracked = vec!["/w/conf/.env", "/w/readme"];
    let specs = [
        ":/",
        ":(top)",
        ":(glob)**",
        "*",
        "**",
        "[.c]*",
        "*v",
        ":/*",
        ":(exclude,top)readme",
        ":(icase)CONF",
        ".",
        ". readme",
        "readme .",
        "readme :/",
        ". :!conf/.env/",
        ". :!con*",
    ];
    for spec in specs {
        let commands = ["git log -p --", "git show --", "git diff HEAD~1 HEAD --", "git grep x HEAD --"];
        let lines: Vec<String> = commands.iter().map(|command| format!("{command} {spec}")).collect();
        bench.lines(ASK, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let others = [
        "git show :(glob)**",
        "git diff --quiet --no-quiet HEAD~1 HEAD",
        "git diff --src-prefix --stat HEAD~1 HEAD",
        "git log --check",
        "git diff --stat --check HEAD~1 HEAD",
        "git status -v",
        "git status --verb",
        "git --literal-pathspecs log -p -- . :!conf",
        "git --icase-pathspecs log -- conf",
    ];
    bench.lines(ASK, &others);
    bench.lines(
        ALLOW,
        &[
            "git log -p -- readme",
            "git log -p -- . :!conf/.env",
            "git diff --cached --stat",
            "git diff --stat --no-color",
            "git status -s",
            "git show HEAD:readme",
        ],
    );
}

#[test]
fn a_file_of_a_commit_is_looked_for_from_every_top() {
    let mut bench = Bench::guarded();
    bench.facts.directories = vec!["/w/conf", "/w/sub"];
    bench.lines(DENY, &["git -C conf show HEAD:./.env", "git -C conf show HEAD:../conf/.env"]);
    bench.scripts(DENY, &["cd conf; git show HEAD:./.env"]);
    bench.lines(ALLOW, &["git -C conf show HEAD:./readme"]);
}

/// A directory of a commit has paths of its own: neither a limit nor an exclusion at the top says what is left out.
#[test]
fn a_path_in_a_directory_of_a_commit_may_be_any() {
    let mut bench = Bench::guarded();
    bench.facts.missing = vec!["/w/HEAD", "/w/main", "/w/0123abc", "/w/4b825dc", "/w/HEAD~1"];
    bench.facts.tracked = vec!["/w/services/api/.env", "/w/.kube/config", "/w/readme"];
    bench.lines(
        ASK,
        &[
            "git diff 4b825dc HEAD:services -- api",
            "git diff 4b825dc 0123abc -- api",
            "git diff 4b825dc..0123abc -- api",
            "git diff 4b825dc HEAD:.kube -- config",
            "git diff 4b825dc HEAD:services -- . :!services :!.kube",
            "git grep x HEAD:services -- api",
            "git grep x 0123abc -- api",
            "git grep -e x 0123abc^{tree} -- api",
            "git diff-tree -p 4b825dc HEAD:services -- api",
        ],
    );
    bench.lines(DENY, &["git diff 4b825dc 0123abc -- services", "git grep x HEAD:services -- .kube/config"]);
    bench.lines(
        ALLOW,
        &[
            "git diff HEAD~1 main -- api",
            "git diff HEAD~1 -- . :!services :!.kube",
            "git diff HEAD~1:src HEAD:src -- lib.rs",
            "git grep x HEAD -- src",
            "git grep 0123abc HEAD -- api",
            "git log -p 0123abc -- api",
        ],
    );
}

/// What is named by its digest may be a file, and a file that is followed has another name: no path limits what is printed.
#[test]
fn what_has_no_path_is_limited_by_none() {
    let mut bench = Bench::guarded();
    bench.facts.missing = vec![
        "/w/HEAD",
        "/w/main",
        "/w/5b3ec5e",
        "/w/5B3EC5E",
        "/w/bd571ec",
        "/w/v1-2-g5b3ec5e",
        "/w/x-gbd571ec",
        "/w/5b3ec5e^{}",
        "/w/5b3ec5e^{blob}",
        "/w/5b3ec5e^{commit}",
        "/w/5b3ec5e~1",
        "/w/bd571ec:list.txt",
    ];
    let lines = [
        "git show 5b3ec5e -- readme",
        "git show 5B3EC5E -- readme",
        "git show 5b3ec5e -- . :!conf",
        "git show 5b3ec5e^{} -- readme",
        "git show 5b3ec5e^{blob} -- readme",
        "git show v1-2-g5b3ec5e -- readme",
        "git show bd571ec:list.txt",
        "git show x-gbd571ec:list.txt",
        "git diff 5b3ec5e readme",
        "git diff x-gbd571ec x-gbd571ec -- api",
        "git diff 4b825dc 0123abc -- readme src",
        "git diff bd571ec:list.txt readme",
        "git grep -e . 5b3ec5e -- readme",
        "git grep x x-gbd571ec -- api",
        "git log -p --follow -- readme",
        "git show --follow HEAD -- readme",
        "git diff --follow HEAD main -- readme",
    ];
    bench.lines(ALLOW, &lines);
    bench.facts.tracked = vec!["/w/conf/.env", "/w/readme"];
    bench.lines(ASK, &lines);
    bench.lines(
        ALLOW,
        &[
            "git show 5b3ec5e^{commit} -- readme",
            "git show 5b3ec5e~1 -- readme",
            "git diff 5b3ec5e^{commit} main -- readme",
            "git grep x 5b3ec5e~1 -- readme",
            "git log -p 5b3ec5e -- readme",
            "git log --oneline --follow -- readme",
        ],
    );
}

#[test]
fn git_tells_nothing_of_tracked_files_that_must_not_be_read() {
    let mut bench = Bench::guarded();
    bench.facts.missing = vec!["/w/HEAD", "/w/HEAD:readme", "/w/HEAD~1"];
    let lines = [
        "git show HEAD:readme --all",
        "git show --branches HEAD:readme",
        "git show --glob=refs/heads/* HEAD:readme",
        "git show --reflog HEAD:readme",
        "git log -Skey",
        "git log --oneline -G^key=a",
        "git diff --stat -I^key=a HEAD~1",
        "git diff --name-only --ignore-matching-lines=^key=a HEAD~1",
        "git log --find-object=0123abc",
    ];
    bench.lines(ALLOW, &lines);
    bench.facts.tracked = vec!["/w/conf/.env", "/w/readme"];
    bench.lines(ASK, &lines);
    bench.lines(
        ALLOW,
        &["git log -Skey -- src", "git show --format=%h HEAD:readme", "git show --no-color HEAD:readme"],
    );
    bench.lines(ASK, &["git show HEAD@{now:::::::::}:id_rsa"]);
}
