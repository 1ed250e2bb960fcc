//! One client of the internet of a test, tried in every way in which it can be started behind the filter.

use super::Internet;
use crate::testkit::{Done, finish};

pub(crate) const WEB_ADDRESS: &str = "30.0.0.10";
pub(crate) const OTHER_ADDRESS: &str = "30.0.0.20";

/// What leads to the proxy, taken away; what says whom to trust stays.
const UNSET: &str = "unset $(env | cut -d= -f1 | grep -iE '_proxy$|^npm_config|NODE_USE_ENV'); exec \"$@\"";

/// One client in one world: what it runs to get something from a host, and how it is known that it did.
pub(crate) struct Client<'a> {
    pub(crate) internet: &'a Internet,
    pub(crate) flags: Vec<String>,
    pub(crate) attempt: &'a dyn Fn(&str) -> Vec<String>,
    pub(crate) got_it: &'a dyn Fn(&Done, &str) -> bool,
    /// How many times somebody was at the server of an address.
    pub(crate) visits: &'a dyn Fn(&str) -> usize,
}

impl Client<'_> {
    /// Without the fence both hosts are reached. Behind it the allowed one is and the other is not, with the variables of the
    /// proxy and without.
    pub(crate) fn reaches_the_allowed_host_alone(&self) {
        for (host, address) in [("web.test", WEB_ADDRESS), ("other.test", OTHER_ADDRESS)] {
            let before = (self.visits)(address);
            let control = self.outside(host);
            let told = format!("the control at {host}: {} {}", control.text(), control.err);
            assert!((self.got_it)(&control, address), "{told}");
            assert!((self.visits)(address) > before, "it came from nowhere: {told}");
        }
        for how in [&[][..], &["sh", "-c", UNSET, "sh"]] {
            let before = (self.visits)(WEB_ADDRESS);
            let done = self.inside(how, "web.test");
            let told = format!("{how:?} {:?} {} {}", done.code, done.text(), done.err);
            assert!((self.got_it)(&done, WEB_ADDRESS), "{told}");
            assert!((self.visits)(WEB_ADDRESS) > before, "it came from nowhere: {told}");
            self.internet.forget_visits();
            let before = (self.visits)(OTHER_ADDRESS);
            let other = self.inside(how, "other.test");
            assert!(!(self.got_it)(&other, OTHER_ADDRESS), "{how:?} {}", other.text());
            assert!(other.err.contains("--allow-host other.test"), "{how:?} {}", other.err);
            assert_eq!((self.visits)(OTHER_ADDRESS), before, "{how:?} {:?}", self.internet.visits());
            assert_eq!(self.internet.names_asked(), Vec::<String>::new(), "{how:?}");
        }
    }

    /// Whoever comes to this host from another mount namespace has no name for where it is until it goes there again.
    fn outside(&self, host: &str) -> Done {
        let mut command = self.internet.host("sh");
        command.args(["-c", "cd \"$0\" && exec \"$@\""]).arg(&self.internet.world.workspace);
        finish(command.args((self.attempt)(host)), b"")
    }

    fn inside(&self, how: &[&str], host: &str) -> Done {
        let mut command = self.internet.ringfence();
        command.arg("run").args(&self.flags).arg("--").args(how).args((self.attempt)(host));
        finish(&mut command, b"")
    }
}

/// A client that gets something over TLS from `https://HOST/`.
pub(crate) fn over_tls(
    internet: &Internet,
    attempt: &dyn Fn(&str) -> Vec<String>,
    got_it: &dyn Fn(&Done, &str) -> bool,
) {
    let flags = words(&["--net", "filtered", "--allow-host", "web.test"]);
    let visits = |address: &str| internet.came_to(address);
    Client { internet, flags, attempt, got_it, visits: &visits }.reaches_the_allowed_host_alone();
}

pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub(crate) fn is_the_page(done: &Done, address: &str) -> bool {
    done.text() == format!("hello from {address}\n")
}
