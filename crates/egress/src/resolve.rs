//! Names become addresses once, and every address is checked before any is used.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};
use ringfence_types::{Host, Layer, Refusal, RefusalCode, Special, special_address, special_name};

use crate::gate::{Reach, Target};
use crate::settings::{NameServers, Settings};
use crate::shared::{FailureKind, Stopped};

/// An honest answer has a few; one with more is cut here after all of them were checked.
const MOST_ADDRESSES: usize = 8;

pub(crate) struct Resolver {
    source: Source,
    known: Mutex<Known>,
    patience: Duration,
}

enum Source {
    Files { resolv_conf: PathBuf, hosts: PathBuf },
    Servers,
}

/// What was read last, and from which state of the files.
#[derive(Clone)]
struct Known {
    stamp: Stamp,
    hosts: Arc<Hosts>,
    /// A machine without name servers still has literal addresses, and names that nobody finds.
    servers: Option<TokioResolver>,
}

type Stamp = [Option<SystemTime>; 2];

impl Resolver {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (source, known) = match &settings.names {
            NameServers::Files { resolv_conf, hosts } => Source::files(resolv_conf.clone(), hosts.clone()),
            NameServers::Only(servers) => (Source::Servers, Known::of(servers)),
        };
        Self { source, known: Mutex::new(known), patience: settings.times.resolve }
    }

    /// A laptop changes its network while a session runs.
    fn known(&self) -> Known {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Source::Files { resolv_conf, hosts } = &self.source
            && known.stamp != stamp(resolv_conf, hosts)
        {
            *known = Known::read(resolv_conf, hosts);
        }
        known.clone()
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
        let known = self.known();
        let listed = known.listed(name);
        if !listed.is_empty() {
            return Ok(listed);
        }
        let unknown =
            |why: &str| Stopped::failed(FailureKind::Name, format!("`{name}` has no address: {why}"));
        let resolver = known.servers.as_ref().ok_or_else(|| unknown("no name server is known"))?;
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

impl Source {
    fn files(resolv_conf: PathBuf, hosts: PathBuf) -> (Self, Known) {
        let known = Known::read(&resolv_conf, &hosts);
        (Self::Files { resolv_conf, hosts }, known)
    }
}

impl Known {
    fn of(servers: &[SocketAddr]) -> Self {
        Self { stamp: Stamp::default(), hosts: Arc::default(), servers: ask(only(servers)) }
    }

    /// The time is taken before the contents: what changes in between is read again.
    fn read(resolv_conf: &Path, hosts: &Path) -> Self {
        let stamp = stamp(resolv_conf, hosts);
        let mut listed = Hosts::default();
        // A file that is not there lists nobody; one that breaks off lists whom it has named.
        let _unread = File::open(hosts).and_then(|file| listed.read_hosts_conf(file));
        let config = fs::read(resolv_conf).ok().and_then(|bytes| parse_resolv_conf(bytes).ok());
        let servers = ask(config.unwrap_or_else(|| only(&[])));
        Self { stamp, hosts: Arc::new(listed), servers }
    }

    /// Who is listed is not asked about: not for the family that the list leaves out either.
    fn listed(&self, name: &str) -> Vec<IpAddr> {
        let Ok(name) = Name::from_ascii(name) else { return Vec::new() };
        let lookup = |kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let found = [RecordType::AAAA, RecordType::A].into_iter().filter_map(lookup);
        let records = found.flat_map(|found| found.answers().to_vec());
        records.filter_map(|record| record.data.ip_addr()).map(|address| address.to_canonical()).collect()
    }
}

fn stamp(resolv_conf: &Path, hosts: &Path) -> Stamp {
    [resolv_conf, hosts].map(|path| fs::metadata(path).and_then(|about| about.modified()).ok())
}

fn ask((config, mut options): (ResolverConfig, ResolverOpts)) -> Option<TokioResolver> {
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = 1024;
    options.positive_max_ttl = Some(Duration::from_secs(300));
    options.negative_max_ttl = Some(Duration::from_secs(5));
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    builder.with_options(options).build().ok()
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("patience", &self.patience).finish_non_exhaustive()
    }
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
    (ResolverConfig::from_parts(None, Vec::new(), servers.collect()), ResolverOpts::default())
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
