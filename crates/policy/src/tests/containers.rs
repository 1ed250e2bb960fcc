//! `[container]`: who may say what, and that nobody below the operator gets more.

use ringfence_types::OciRuntime;

use super::*;

fn names(effective: &EffectivePolicy) -> Vec<&str> {
    effective.policy.container.images.iter().flatten().map(|name| name.as_str()).collect()
}

fn refused(flags: &StartupFlags, files: &[PolicyFile]) -> String {
    lines(&merged(flags, files).unwrap_err()).join("\n")
}

/// C-24: the backend of a profile, a workspace or an agent can be a container; what is weaker cannot replace it.
#[test]
fn a_container_can_be_required_and_not_be_left() {
    let requires =
        operator("profile = \"strict\"\nbackend = \"container\"\n[container]\nimage = \"dev\"\n").unwrap();
    let effective = merged(&flags(), std::slice::from_ref(&requires)).unwrap();
    assert_eq!((effective.policy.backend, names(&effective)), (Some(Backend::Container), vec!["dev"]));
    for backend in [Backend::Native, Backend::Bubblewrap, Backend::Landlock, Backend::None] {
        let other = StartupFlags { backend: Some(backend), ..flags() };
        let said = refused(&other, std::slice::from_ref(&requires));
        assert!(
            said.contains(&format!("`--backend {backend}` is above `backend = \"container\"`")),
            "{said}"
        );
    }
    let leaves = workspace("backend = \"native\"\n").unwrap();
    let asked = merged(&flags(), &[requires.clone(), leaves]).unwrap();
    assert_eq!((asked.policy.backend, asked.requests.len()), (Some(Backend::Container), 1));

    let agent = operator("[agents.codex]\nbackend = \"container\"\ncontainer.image = \"dev\"\n").unwrap();
    let mine = StartupFlags { agent: Some("codex".to_owned()), ..flags() };
    assert_eq!(merged(&mine, std::slice::from_ref(&agent)).unwrap().policy.backend, Some(Backend::Container));
    assert_eq!(merged(&flags(), &[agent]).unwrap().policy.backend, None);
    // And the other way round: whoever has said nothing of containers is not given one.
    let image = StartupFlags { image: Some("dev".parse().unwrap()), ..flags() };
    assert!(refused(&image, &[]).contains("the backend is not `container`"));
}

#[test]
fn lists_get_shorter_and_nothing_else() {
    let file = operator("[container]\nimage = [\"dev\", \"test\"]\nmax_idle = \"1h\"\n").unwrap();
    let with = |text: &str| merged(&flags(), &[file.clone(), workspace(text).unwrap()]).unwrap();
    let narrowed = with("[container]\nimage = \"test\"\nmax_idle = \"5m\"\nruntime = \"runsc\"\n");
    assert_eq!((names(&narrowed), narrowed.requests.len()), (vec!["test"], 0));
    assert_eq!(narrowed.policy.container.max_idle.0, 300_000);
    assert_eq!(narrowed.policy.container.runtime, Some(OciRuntime::Runsc));
    let widened = with("[container]\nimage = [\"test\", \"evil\"]\nmax_idle = \"2h\"\nruntime = \"runc\"\n");
    assert_eq!((names(&widened), widened.requests.len()), (vec!["dev", "test"], 3));
    assert_eq!((widened.policy.container.max_idle.0, widened.policy.container.runtime), (3_600_000, None));

    let chosen =
        StartupFlags { image: Some("test".parse().unwrap()), backend: Some(Backend::Container), ..flags() };
    assert_eq!(names(&merged(&chosen, std::slice::from_ref(&file)).unwrap()), ["test"]);
    let other = StartupFlags { image: Some("evil".parse().unwrap()), ..chosen };
    assert!(refused(&other, std::slice::from_ref(&file)).contains("`--image evil` is above"));
}

#[test]
fn what_the_operator_says_of_the_engine_is_not_said_again() {
    let file =
        operator("[container]\nengine_socket = \"~/api.sock\"\nruntime = \"crun\"\nwarm_containers = 2\n")
            .unwrap();
    let effective = merged(&flags(), std::slice::from_ref(&file)).unwrap();
    assert_eq!(effective.policy.container.engine_socket.as_deref(), Some(Path::new("/home/ann/api.sock")));
    assert_eq!(effective.policy.container.warm_containers, 2);
    let elsewhere = StartupFlags { engine: Some(PathBuf::from("/tmp/evil.sock")), ..flags() };
    assert!(refused(&elsewhere, std::slice::from_ref(&file)).contains("--engine /tmp/evil.sock"));
    let runtime = StartupFlags { runtime: Some(OciRuntime::Runc), ..flags() };
    assert!(refused(&runtime, &[file]).contains("`--runtime runc` is above"));
    for text in ["[container]\nengine_socket = \"/x\"\n", "[container]\nwarm_containers = 1\n"] {
        let said = lines(&workspace(text).unwrap_err()).join("\n");
        assert!(said.contains("says nothing about `container."), "{said}");
    }
    for (text, says) in [
        ("[container]\nimage = \"A b\"\n", "is not the name of an image"),
        ("[container]\nimage = []\n", "empty list"),
        ("[container]\nengine_socket = \"api.sock\"\n", "not the absolute path"),
        ("[container]\nruntime = \"kata\"\n", "unknown runtime"),
        ("[container]\nwarm_containers = 17\n", "number of containers"),
        ("[container]\ntrusted_keys = \"me\"\n", "not a digest"),
    ] {
        let said = lines(&operator(text).unwrap_err()).join("\n");
        assert!(said.contains(says), "{said}");
    }
}
