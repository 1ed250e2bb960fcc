//! Protocol sniffing: the first bytes of a client decide how the proxy treats the flow.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ringfence_types::Refusal;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client_hello::{ClientHello, ClientHelloReader, FirstBytes, check_name, disagreement};
use crate::flow_gate::FlowTarget;

/// First bytes of a client, read and not yet forwarded. A TLS server name was checked against the target.
#[derive(Debug)]
pub(crate) struct ProtocolSniff {
    pub(crate) speech: FirstBytes,
    pub(crate) bytes: Bytes,
}

/// Reason why the flow cannot continue.
#[derive(Debug)]
pub(crate) enum SniffError {
    /// With the client's protocol, so that the refusal can be sent in it.
    Refused(FirstBytes, Refusal),
    Broken(io::Error),
}

impl From<io::Error> for SniffError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Waits for the first byte without limit, then at most `patience` for enough bytes to decide. The end of the stream also decides.
pub(crate) async fn listen(
    stream: &TcpStream,
    head: Bytes,
    target: &FlowTarget,
    patience: Duration,
) -> Result<ProtocolSniff, SniffError> {
    let mut bytes = BytesMut::from(head.as_ref());
    if bytes.is_empty() && read_some(stream, &mut bytes).await? == 0 {
        return Ok(ProtocolSniff { speech: FirstBytes::Other, bytes: Bytes::new() });
    }
    let heard = timeout(patience, hear(stream, &mut bytes, target)).await;
    let speech = heard.unwrap_or_else(|_elapsed| Err(unclear(FirstBytes::of(&bytes), target)))?;
    Ok(ProtocolSniff { speech, bytes: bytes.freeze() })
}

async fn hear(
    stream: &TcpStream,
    bytes: &mut BytesMut,
    target: &FlowTarget,
) -> Result<FirstBytes, SniffError> {
    loop {
        match FirstBytes::of(bytes) {
            FirstBytes::Open if read_some(stream, bytes).await? == 0 => return Ok(FirstBytes::Other),
            FirstBytes::Open => {}
            FirstBytes::Tls => return hear_hello(stream, bytes, target).await,
            speech => return Ok(speech),
        }
    }
}

async fn hear_hello(
    stream: &TcpStream,
    bytes: &mut BytesMut,
    target: &FlowTarget,
) -> Result<FirstBytes, SniffError> {
    let refused = |refusal| SniffError::Refused(FirstBytes::Tls, refusal);
    let mut reader = ClientHelloReader::new();
    let mut seen = 0;
    loop {
        match reader.read(bytes.get(seen..).unwrap_or_default()) {
            ClientHello::Complete(name) => {
                check_name(target, name.as_deref()).map_err(refused)?;
                return Ok(FirstBytes::Tls);
            }
            ClientHello::Broken(message) => return Err(refused(disagreement(message))),
            ClientHello::Incomplete => seen = bytes.len(),
        }
        if read_some(stream, bytes).await? == 0 {
            return Err(SniffError::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// Refuses bytes that may still become TLS or HTTP.
fn unclear(speech: FirstBytes, target: &FlowTarget) -> SniffError {
    let message = format!("the client of `{target}` did not finish its first words in time");
    SniffError::Refused(speech, disagreement(message))
}

/// Allocates only when there is something to read.
async fn read_some(stream: &TcpStream, bytes: &mut BytesMut) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        bytes.reserve(4096);
        match stream.try_read_buf(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}
