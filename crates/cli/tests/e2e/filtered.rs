//! `--net filtered`: these hosts and no others, for every client.

use crate::internet::Internet;

/// The test world itself: what the controls rely on.
#[test]
fn the_internet_of_the_tests_works() {
    let internet = Internet::new();
    let page = internet.control(&["curl", "-sS", "https://web.test/"]).expect(0);
    assert_eq!(page.text(), "hello from 30.0.0.10\n");
    let page = internet.control(&["curl", "-sS", "http://meta.test/"]).expect(0);
    assert_eq!(page.text(), "hello from 169.254.169.254\n");
    assert_eq!(internet.came_to("30.0.0.10"), 1);
    assert!(internet.names_asked().contains(&"web.test".to_owned()));
    internet.control(&["curl", "-sS", "--max-time", "2", "https://nowhere.test/"]).expect(6);
}

/// S004-3: an allowed host is reached, any other is not, by a client that knows of the proxy and by one that does not.
#[test]
fn curl_reaches_the_allowed_host_and_no_other() {
    let internet = Internet::new();
    let curl = |flags: &[&str], more: &[&str], url: &str| {
        let command = [&["curl", "-sS", "--max-time", "20"], more, &[url]].concat();
        internet.run(flags, &command)
    };
    for more in [&[][..], &["--noproxy", "*"]] {
        let allowed =
            curl(&["--net", "filtered", "--allow-host", "web.test"], more, "https://web.test/").expect(0);
        assert_eq!(allowed.text(), "hello from 30.0.0.10\n", "{more:?}");
        internet.forget_visits();
        let other = curl(&["--allow-host", "web.test"], more, "https://other.test/");
        assert_ne!(other.code, Some(0), "{more:?}");
        assert!(other.err.contains("--allow-host other.test"), "{more:?}: {}", other.err);
        assert_eq!(internet.visits(), Vec::<serde_json::Value>::new(), "{more:?}");
    }
    let control = internet.control(&["curl", "-sS", "https://other.test/"]).expect(0);
    assert_eq!(control.text(), "hello from 30.0.0.20\n");
}
