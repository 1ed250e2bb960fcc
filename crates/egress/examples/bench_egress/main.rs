//! What `cargo xtask bench` measures of the proxy, between a client and a server on the loopback. VIA is `direct`, `tunnel` or
//! `inspect` (our proxy, in this process) or the address of another HTTP proxy. Durations in nanoseconds, one per line:
//!
//! - `bench_egress request VIA N`: N requests for 1 kB over one connection with TLS;
//! - `bench_egress ping VIA N`: N exchanges of 64 bytes over one connection;
//! - `bench_egress flow VIA N`: N times a new connection, one exchange, and its end;
//! - `bench_egress bulk VIA BYTES N`: N times so many bytes from the server to the client;
//! - `bench_egress start N`: N times the start and the end of our proxy.
//!
//! And besides: `bench_egress idle N` opens N tunnels through our proxy, exchanges a few bytes over each, and prints by how
//! much the memory of this process grew, in kB; its clients are `bench_egress hold PROXY SERVER N`.
#![expect(clippy::print_stdout, reason = "the numbers are the program's output")]

mod tls;

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_egress::{
    AddressScope, DialPermit, Flow, FlowEnd, FlowGate, FlowIngress, FlowTerms, FlowTreatment, FlowVerdict,
    HttpSettings, LeakReport, NameServers, Proxy, ProxyListeners, ProxySettings, SessionCa, Traffic,
};
use ringfence_types::Refusal;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

type Any<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Any<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["request", via, rounds] => request(via, rounds.parse()?),
        ["ping", via, rounds] => ping(&Via::new(via)?, rounds.parse()?),
        ["flow", via, rounds] => flow(&Via::new(via)?, rounds.parse()?),
        ["bulk", via, bytes, rounds] => bulk(&Via::new(via)?, bytes.parse()?, rounds.parse()?),
        ["start", rounds] => report(rounds.parse()?, || {
            start(FlowTreatment::Tunnel, HttpSettings::default()).map(drop).map_err(io::Error::other)
        }),
        ["idle", count] => idle(count.parse()?),
        ["hold", via, server, count] => hold(&Via::new(via)?, server.parse()?, count.parse()?),
        other => Err(format!("not a benchmark: {other:?}").into()),
    }
}

/// How to reach the server.
enum Via {
    Direct,
    Proxy(SocketAddr),
    Own(SocketAddr, #[expect(dead_code, reason = "it runs until it is dropped")] Proxy),
}

impl Via {
    fn new(word: &str) -> Any<Self> {
        match word {
            "direct" => Ok(Self::Direct),
            "tunnel" => {
                let (address, proxy) = start(FlowTreatment::Tunnel, HttpSettings::default())?;
                Ok(Self::Own(address, proxy))
            }
            address => Ok(Self::Proxy(address.parse()?)),
        }
    }

    fn connect(&self, server: SocketAddr) -> io::Result<TcpStream> {
        let (Self::Proxy(address) | Self::Own(address, _)) = self else {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            return Ok(stream);
        };
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n").as_bytes())?;
        let mut head = Vec::new();
        let mut part = [0; 512];
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => head.extend_from_slice(part.get(..count).unwrap_or_default()),
            }
        }
        if head.get(9..12) == Some(b"200") { Ok(stream) } else { Err(io::Error::other("refused")) }
    }
}

/// Lets everything pass to this machine, in one way.
struct Open(FlowTreatment);

/// Leave to dial, of a gate that keeps no record.
#[derive(Debug)]
struct PlainPermit(SocketAddr);

impl DialPermit for PlainPermit {
    fn address(&self) -> SocketAddr {
        self.0
    }
}

impl FlowGate for Open {
    fn judge(&self, _flow: &Flow) -> FlowVerdict {
        FlowVerdict::Pass(FlowTerms { treatment: self.0, reach: AddressScope::Special })
    }

    fn answers(&self, _name: &str) -> bool {
        true
    }

    fn opens(&self, flow: &Flow, address: IpAddr) -> Result<Box<dyn DialPermit>, Refusal> {
        Ok(Box::new(PlainPermit(SocketAddr::new(address, flow.target.port))))
    }

    fn finding(&self, _flow: &Flow, _leak: &LeakReport) {}

    fn malformed(&self, _way: FlowIngress, _why: &str) {}

    fn ended(&self, _flow: &Flow, _traffic: Traffic, _end: &FlowEnd) {}
}

fn start(treatment: FlowTreatment, http: HttpSettings) -> Any<(SocketAddr, Proxy)> {
    let here = (Ipv4Addr::LOCALHOST, 0);
    let doors = ProxyListeners {
        proxy: TcpListener::bind(here)?,
        transparent: None,
        dns: UdpSocket::bind(here)?,
        dns_stream: TcpListener::bind(here)?,
    };
    let address = doors.proxy.local_addr()?;
    let mut settings =
        ProxySettings { names: NameServers::Only(Vec::new()), http, ..ProxySettings::default() };
    settings.limits.flows_per_second = 1_000_000;
    Ok((address, Proxy::start(doors, Arc::new(Open(treatment)), settings)?))
}

fn server(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let handle = Arc::clone(&handle);
            thread::spawn(move || handle(stream));
        }
    });
    Ok(address)
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 64];
    let _nodelay = stream.set_nodelay(true);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(buffer.get(..count).unwrap_or_default()).is_err() {
            return;
        }
    }
}

fn exchange(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; 64];
    stream.write_all(&bytes)?;
    stream.read_exact(&mut bytes)
}

fn ping(via: &Via, rounds: usize) -> Any<()> {
    let mut stream = via.connect(server(echo)?)?;
    exchange(&mut stream)?;
    report(rounds, || exchange(&mut stream))
}

/// The authority of the session is what a client of `inspect` trusts besides the root of the server.
fn request(via: &str, rounds: usize) -> Any<()> {
    let site = tls::Site::start()?;
    let ca = Arc::new(SessionCa::new()?);
    let via = if via == "inspect" {
        let extra_roots = site.root.clone().into_bytes();
        let http = HttpSettings { ca: Some(Arc::clone(&ca)), extra_roots, ..HttpSettings::default() };
        let (address, proxy) = start(FlowTreatment::Inspect, http)?;
        Via::Own(address, proxy)
    } else {
        Via::new(via)?
    };
    let mut client = tls::Client::new(via.connect(site.address)?, site.address, &[&site.root, ca.pem()])?;
    client.get()?;
    report(rounds, || client.get())
}

fn flow(via: &Via, rounds: usize) -> Any<()> {
    let server = server(echo)?;
    exchange(&mut via.connect(server)?)?;
    report(rounds, || exchange(&mut via.connect(server)?))
}

fn bulk(via: &Via, bytes: usize, rounds: usize) -> Any<()> {
    let server = server(move |mut stream| {
        let chunk = vec![0; 256 * 1024];
        let mut left = if stream.read_exact(&mut [0]).is_ok() { bytes } else { 0 };
        while left > 0 {
            let part = chunk.get(..left.min(chunk.len())).unwrap_or_default();
            if stream.write_all(part).is_err() {
                return;
            }
            left -= part.len();
        }
    })?;
    let mut buffer = vec![0; 256 * 1024];
    report(rounds, || {
        let mut stream = via.connect(server)?;
        stream.write_all(&[0])?;
        let mut got = 0;
        while let count @ 1.. = stream.read(&mut buffer)? {
            got += count;
        }
        if got == bytes { Ok(()) } else { Err(io::Error::other("too little came")) }
    })
}

fn report(rounds: usize, mut act: impl FnMut() -> io::Result<()>) -> Any<()> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        act()?;
        times.push(start.elapsed());
    }
    for time in times {
        println!("{}", time.as_nanos());
    }
    Ok(())
}

/// The clients are another process: their sockets count against another limit, and their memory is not ours.
fn idle(count: usize) -> Any<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let server = listener.local_addr()?.to_string();
    let (door, proxy) = start(FlowTreatment::Tunnel, HttpSettings::default())?;
    let before = resident()?;
    let mut clients = Command::new(std::env::current_exe()?)
        .args(["hold", &door.to_string(), &server, &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let (mut accepted, _) = listener.accept()?;
        // The client first: what the server says at once would come with the proxy's own answer.
        let mut bytes = [0; 64];
        accepted.read_exact(&mut bytes)?;
        accepted.write_all(&bytes)?;
        open.push(accepted);
    }
    clients.stdout.take().ok_or("no output")?.read_exact(&mut [0])?;
    // What was allocated on the way is given back in a moment.
    thread::sleep(Duration::from_secs(2));
    println!("{}", resident()?.saturating_sub(before));
    drop((clients.stdin.take(), open, proxy));
    clients.wait()?;
    Ok(())
}

/// Opens tunnels through a proxy, uses each once, says so with one byte, and holds them until its input ends.
fn hold(via: &Via, server: SocketAddr, count: usize) -> Any<()> {
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = via.connect(server)?;
        exchange(&mut client)?;
        open.push(client);
    }
    io::stdout().write_all(b".")?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Resident memory of this process, in kB.
fn resident() -> Any<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse()?)
}
