//! Names become addresses once, and every address is checked before any is used.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::read_system_conf;
use ringfence_types::{Host, Layer, Refusal, RefusalCode, Special, special_address, special_name};

use crate::gate::{Reach, Target};
use crate::settings::{NameServers, Settings};
use crate::shared::{FailureKind, Stopped};

/// An honest answer has a few; one with more is cut here after all of them were checked.
const MOST_ADDRESSES: usize = 8;

pub(crate) struct Resolver {
    inner: Option<TokioResolver>,
    patience: Duration,
}

impl Resolver {
    /// A machine without name servers still has literal addresses, and names that nobody finds.
    pub(crate) fn new(settings: &Settings) -> Self {
        let (config, options) = match &settings.names {
            NameServers::System => system(),
            NameServers::Only(servers) => only(servers),
        };
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        Self { inner: builder.with_options(options).build().ok(), patience: settings.times.resolve }
    }

    /// The addresses of a target, all of which it may be.
    ///
    /// One address that it may not be refuses the whole answer: whoever answers so wants somebody to pick that one.
    pub(crate) async fn addresses(&self, target: &Target, reach: Reach) -> Result<Vec<IpAddr>, Stopped> {
        let found = match &target.host {
            Host::V4(address) => vec![(*address).into()],
            Host::V6(address) => vec![(*address).into()],
            Host::Below(name) => return Err(no_host(name)),
            Host::Name(name) => {
                check_name(name, reach)?;
                self.look_up(name).await?
            }
        };
        for address in &found {
            check_address(&target.host, *address, reach)?;
        }
        Ok(in_turns(found))
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Stopped> {
        let unknown =
            |why: &str| Stopped::failed(FailureKind::Name, format!("`{name}` has no address: {why}"));
        let resolver = self.inner.as_ref().ok_or_else(|| unknown("no name server is known"))?;
        // A name with a dot is whole; the search list is for names without, as everywhere.
        let asked = if name.contains('.') { format!("{name}.") } else { name.to_owned() };
        let late = || Stopped::failed(FailureKind::Late, format!("nobody answered in time who `{name}` is"));
        let answer = tokio::time::timeout(self.patience, resolver.lookup_ip(asked)).await;
        let found: Vec<IpAddr> = match answer {
            Err(_) | Ok(Err(NetError::Timeout)) => return Err(late()),
            Ok(Err(error)) => return Err(unknown(&error.to_string())),
            Ok(Ok(found)) => found.iter().map(|address| address.to_canonical()).collect(),
        };
        if found.is_empty() { Err(unknown("the answer is empty")) } else { Ok(found) }
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("patience", &self.patience).finish_non_exhaustive()
    }
}

fn system() -> (ResolverConfig, ResolverOpts) {
    let (config, mut options) = read_system_conf().unwrap_or_else(|_error| only(&[]));
    options.use_hosts_file = ResolveHosts::Always;
    bounded(&mut options);
    (config, options)
}

fn only(servers: &[SocketAddr]) -> (ResolverConfig, ResolverOpts) {
    let servers = servers.iter().map(|server| {
        let at_port = |mut connection: ConnectionConfig| {
            connection.port = server.port();
            connection
        };
        let connections = vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
        NameServerConfig::new(server.ip(), true, connections)
    });
    let mut options = ResolverOpts::default();
    options.use_hosts_file = ResolveHosts::Never;
    bounded(&mut options);
    (ResolverConfig::from_parts(None, Vec::new(), servers.collect()), options)
}

fn bounded(options: &mut ResolverOpts) {
    options.cache_size = 1024;
    options.positive_max_ttl = Some(Duration::from_secs(300));
    options.negative_max_ttl = Some(Duration::from_secs(5));
}

fn check_name(name: &str, reach: Reach) -> Result<(), Refusal> {
    match special_name(name) {
        None => Ok(()),
        Some(special) if permits(reach, special) => Ok(()),
        Some(special) => Err(refusal(format!("`{name}` is {special}"), special)),
    }
}

fn check_address(host: &Host, address: IpAddr, reach: Reach) -> Result<(), Refusal> {
    let special = special_address(address);
    if let Some(special) = special
        && !permits(reach, special)
    {
        return Err(refusal(leads_to(host, address, &special.to_string()), special));
    }
    if special.is_none() && reach == Reach::Internet && is_own(address) {
        let what = "an address of this machine";
        return Err(refusal(leads_to(host, address, what), Special::Loopback));
    }
    Ok(())
}

fn permits(reach: Reach, special: Special) -> bool {
    let nobody =
        matches!(special, Special::Metadata | Special::Unspecified | Special::Multicast | Special::Broadcast);
    reach == Reach::Special && !nobody
}

/// Whether the address belongs to an interface here: only such an address can be bound. Any other answer of the kernel
/// than "not available" leaves it open, and what is open is taken for ours.
fn is_own(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), std::io::ErrorKind::AddrNotAvailable)
                && error.raw_os_error() != Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
        }
    }
}

fn leads_to(host: &Host, address: IpAddr, what: &str) -> String {
    match host {
        Host::Name(name) => format!("`{name}` resolves to {address}, which is {what}"),
        _ => format!("{address} is {what}"),
    }
}

fn refusal(message: String, special: Special) -> Refusal {
    let hint = match special {
        Special::Metadata => None,
        _ => Some(
            "a rule that names exactly this host and allows special addresses would let it pass".to_owned(),
        ),
    };
    Refusal {
        code: RefusalCode::Network,
        layer: Layer::Floor,
        rule: "network.addresses".to_owned(),
        message,
        hint,
    }
}

fn no_host(name: &str) -> Stopped {
    Stopped::failed(FailureKind::Name, format!("`*.{name}` is a pattern, not a host"))
}

/// Families in turns, so that a dead one costs one attempt.
fn in_turns(found: Vec<IpAddr>) -> Vec<IpAddr> {
    let (six, four): (Vec<_>, Vec<_>) = found.into_iter().partition(IpAddr::is_ipv6);
    let mut ordered = Vec::with_capacity(MOST_ADDRESSES);
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    while ordered.len() < MOST_ADDRESSES {
        let pair = [six.next(), four.next()];
        if pair == [None, None] {
            break;
        }
        ordered.extend(pair.into_iter().flatten());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn families_take_turns_and_come_to_an_end() {
        let found = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"].map(address).to_vec();
        let expected = ["2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.3"].map(address).to_vec();
        assert_eq!(in_turns(found), expected);
        assert_eq!(in_turns(vec![address("192.0.2.1"); 5000]).len(), MOST_ADDRESSES);
    }

    #[test]
    fn an_address_of_this_machine_is_known() {
        assert!(is_own(address("127.0.0.1")));
        assert!(!is_own(address("192.0.2.1")));
        assert!(!is_own(address("2001:db8::1")));
    }

    #[test]
    fn metadata_is_out_of_reach_even_where_special_addresses_are_not() {
        let host = Host::Name("example.org".to_owned());
        for text in
            ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "0.0.0.0", "224.0.0.1"]
        {
            assert!(check_address(&host, address(text), Reach::Special).is_err(), "{text}");
        }
        assert!(check_address(&host, address("127.0.0.1"), Reach::Special).is_ok());
        assert!(check_address(&host, address("127.0.0.1"), Reach::Internet).is_err());
        assert!(check_name("metadata.google.internal", Reach::Special).is_err());
        assert!(check_name("localhost", Reach::Internet).is_err());
    }
}
