//! A server of HTTP over TLS with a certificate of its own root, and a client that trusts it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::{Any, server};

const BODY: usize = 1024;

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    /// Who signs for it.
    pub(crate) root: String,
}

impl Site {
    pub(crate) fn start() -> Any<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate()?;
        let names = vec![Ipv4Addr::LOCALHOST.to_string()];
        let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let config = Arc::new(config);
        let address = server(move |stream| {
            let _gone = answer(stream, Arc::clone(&config));
        })?;
        Ok(Self { address, root })
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Every request of a connection with the same page.
fn answer(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut page = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").into_bytes();
    page.resize(page.len() + BODY, b'x');
    while read_head(&mut stream)?.is_some() {
        stream.write_all(&page)?;
        stream.flush()?;
    }
    Ok(())
}

/// Reads up to the end of a head. The peers here send nothing behind it before it was answered, except for a body.
fn read_head(stream: &mut impl Read) -> io::Result<Option<(Vec<u8>, usize)>> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part)? {
            0 => return Ok(None),
            count => bytes.extend_from_slice(part.get(..count).unwrap_or_default()),
        }
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(Some((bytes, end + 4)));
        }
    }
}

/// A connection over which requests are made.
pub(crate) struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    request: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream, site: SocketAddr, roots: &[&str]) -> Any<Self> {
        let mut store = RootCertStore::empty();
        for pem in roots {
            store.add(CertificateDer::from_pem_slice(pem.as_bytes())?)?;
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        let name = ServerName::from(site.ip());
        let connection = ClientConnection::new(Arc::new(config), name)?;
        let request = format!("GET / HTTP/1.1\r\nHost: {site}\r\nAccept: */*\r\n\r\n").into_bytes();
        Ok(Self { stream: StreamOwned::new(connection, stream), request })
    }

    pub(crate) fn get(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request)?;
        self.stream.flush()?;
        let (bytes, head) = read_head(&mut self.stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if bytes.get(9..12) != Some(b"200") {
            return Err(io::Error::other(String::from_utf8_lossy(&bytes).into_owned()));
        }
        let mut rest = vec![0; (head + BODY).saturating_sub(bytes.len())];
        self.stream.read_exact(&mut rest)
    }
}
