//! Name resolution on the host. The proxy resolves a name once and checks every address before it uses one.

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
use ringfence_types::{
    Host, PolicyLayer, Refusal, RefusalCode, RuleId, SpecialAddress, special_address, special_name,
};

use crate::flow_gate::{AddressScope, FlowTarget};
use crate::live_flow::{FlowStop, UpstreamFailureKind};
use crate::settings::{NameServers, ProxySettings};

/// Addresses used per name. All addresses of the answer are checked before it is cut.
const MOST_ADDRESSES: usize = 8;

pub(crate) struct Resolver {
    source: ResolverSource,
    known: Mutex<CachedConfig>,
    patience: Duration,
}

enum ResolverSource {
    Files { resolv_conf: PathBuf, hosts: PathBuf },
    Servers,
}

/// Parsed configuration and the file times it belongs to.
#[derive(Clone)]
struct CachedConfig {
    stamp: FileTimes,
    hosts: Arc<Hosts>,
    /// `None`: the machine has no name servers. Literal addresses still work.
    servers: Option<TokioResolver>,
}

type FileTimes = [Option<SystemTime>; 2];

impl Resolver {
    pub(crate) fn new(settings: &ProxySettings) -> Self {
        let (source, known) = match &settings.names {
            NameServers::Files { resolv_conf, hosts } => {
                ResolverSource::files(resolv_conf.clone(), hosts.clone())
            }
            NameServers::Only(servers) => (ResolverSource::Servers, CachedConfig::of(servers)),
        };
        Self { source, known: Mutex::new(known), patience: settings.times.resolve }
    }

    /// Reads the files again when they change, because a laptop changes networks while a session runs.
    fn known(&self) -> CachedConfig {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let ResolverSource::Files { resolv_conf, hosts } = &self.source
            && known.stamp != stamp(resolv_conf, hosts)
        {
            *known = CachedConfig::read(resolv_conf, hosts);
        }
        known.clone()
    }

    /// Addresses of a target, all within its address scope.
    ///
    /// One address outside the scope refuses the whole answer: mixed answers are a sign of DNS rebinding.
    pub(crate) async fn addresses(
        &self,
        target: &FlowTarget,
        reach: AddressScope,
    ) -> Result<Vec<IpAddr>, FlowStop> {
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

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, FlowStop> {
        let known = self.known();
        let listed = known.listed(name);
        if !listed.is_empty() {
            return Ok(listed);
        }
        let unknown = |why: &str| {
            FlowStop::failed(UpstreamFailureKind::Name, format!("`{name}` has no address: {why}"))
        };
        let resolver = known.servers.as_ref().ok_or_else(|| unknown("no name server is known"))?;
        // A name with a dot is absolute; the search list applies to names without one.
        let asked = if name.contains('.') { format!("{name}.") } else { name.to_owned() };
        let late = || {
            FlowStop::failed(UpstreamFailureKind::Late, format!("no answer in time for the name `{name}`"))
        };
        let answer = tokio::time::timeout(self.patience, resolver.lookup_ip(asked)).await;
        let found: Vec<IpAddr> = match answer {
            Err(_) | Ok(Err(NetError::Timeout)) => return Err(late()),
            Ok(Err(error)) => return Err(unknown(&error.to_string())),
            Ok(Ok(found)) => found.iter().map(|address| address.to_canonical()).collect(),
        };
        if found.is_empty() { Err(unknown("the answer is empty")) } else { Ok(found) }
    }
}

impl ResolverSource {
    fn files(resolv_conf: PathBuf, hosts: PathBuf) -> (Self, CachedConfig) {
        let known = CachedConfig::read(&resolv_conf, &hosts);
        (Self::Files { resolv_conf, hosts }, known)
    }
}

impl CachedConfig {
    fn of(servers: &[SocketAddr]) -> Self {
        let (config, options) = only(servers);
        Self { stamp: FileTimes::default(), hosts: Arc::default(), servers: ask(config, options) }
    }

    /// Reads the times before the contents, so a change in between causes another read.
    fn read(resolv_conf: &Path, hosts: &Path) -> Self {
        let stamp = stamp(resolv_conf, hosts);
        let mut listed = Hosts::default();
        // A missing file has no entries; a truncated one has those before the end.
        let _unread = File::open(hosts).and_then(|file| listed.read_hosts_conf(file));
        let config = fs::read(resolv_conf).ok().and_then(|bytes| parse_resolv_conf(bytes).ok());
        let (config, options) = config.unwrap_or_else(|| only(&[]));
        Self { stamp, hosts: Arc::new(listed), servers: ask(config, options) }
    }

    /// A name in the hosts file is not resolved by DNS, also not for a missing family.
    fn listed(&self, name: &str) -> Vec<IpAddr> {
        let Ok(name) = Name::from_ascii(name) else { return Vec::new() };
        let lookup = |kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let found = [RecordType::AAAA, RecordType::A].into_iter().filter_map(lookup);
        let records = found.flat_map(|found| found.answers().to_vec());
        records.filter_map(|record| record.data.ip_addr()).map(|address| address.to_canonical()).collect()
    }
}

fn stamp(resolv_conf: &Path, hosts: &Path) -> FileTimes {
    [resolv_conf, hosts].map(|path| fs::metadata(path).and_then(|about| about.modified()).ok())
}

fn ask(config: ResolverConfig, mut options: ResolverOpts) -> Option<TokioResolver> {
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

fn check_name(name: &str, reach: AddressScope) -> Result<(), Refusal> {
    match special_name(name) {
        None => Ok(()),
        Some(special) if permits(reach, special) => Ok(()),
        Some(special) => Err(refusal(format!("`{name}` is {special}"), special)),
    }
}

fn check_address(host: &Host, address: IpAddr, reach: AddressScope) -> Result<(), Refusal> {
    let special = special_address(address);
    if let Some(special) = special
        && !permits(reach, special)
    {
        return Err(refusal(leads_to(host, address, &special.to_string()), special));
    }
    if special.is_none() && reach == AddressScope::Internet && is_own(address) {
        let what = "an address of this machine";
        return Err(refusal(leads_to(host, address, what), SpecialAddress::Loopback));
    }
    Ok(())
}

fn permits(reach: AddressScope, special: SpecialAddress) -> bool {
    let nobody = matches!(
        special,
        SpecialAddress::Metadata
            | SpecialAddress::Unspecified
            | SpecialAddress::Multicast
            | SpecialAddress::Broadcast
    );
    reach == AddressScope::Special && !nobody
}

/// Whether the address belongs to a local interface: only such an address can be bound. Any error but "not available" counts as
/// local, which is the safe answer.
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

fn refusal(message: String, special: SpecialAddress) -> Refusal {
    let hint = match special {
        SpecialAddress::Metadata => None,
        _ => Some(
            "a rule that names exactly this host and allows special addresses would let it pass".to_owned(),
        ),
    };
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkAddresses.into(),
        message,
        hint,
    }
}

fn no_host(name: &str) -> FlowStop {
    FlowStop::failed(UpstreamFailureKind::Name, format!("`*.{name}` is a pattern, not a host"))
}

/// Alternates address families, so that a dead one costs one attempt.
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
            assert!(check_address(&host, address(text), AddressScope::Special).is_err(), "{text}");
        }
        assert!(check_address(&host, address("127.0.0.1"), AddressScope::Special).is_ok());
        assert!(check_address(&host, address("127.0.0.1"), AddressScope::Internet).is_err());
        assert!(check_name("metadata.google.internal", AddressScope::Special).is_err());
        assert!(check_name("localhost", AddressScope::Internet).is_err());
    }
}
