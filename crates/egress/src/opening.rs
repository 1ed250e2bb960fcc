//! What a client says first decides how it is treated.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ringfence_types::Refusal;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::gate::Target;
use crate::hello::{Hello, HelloReader, Speech, check_name, disagreement};

/// The first bytes of a client, read and not yet passed on. In TLS, the name in them is the target's.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) speech: Speech,
    pub(crate) bytes: Bytes,
}

/// Why there is nothing to treat.
#[derive(Debug)]
pub(crate) enum Unopened {
    /// With what the client speaks, so that it can be told.
    Refused(Speech, Refusal),
    Broken(io::Error),
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Waits for the client to speak, for ever, and then at most `patience` for it to have said enough. A client that ends first
/// has said all it will.
pub(crate) async fn listen(
    stream: &TcpStream,
    head: Bytes,
    target: &Target,
    patience: Duration,
) -> Result<Opening, Unopened> {
    let mut bytes = BytesMut::from(head.as_ref());
    if bytes.is_empty() && read_some(stream, &mut bytes).await? == 0 {
        return Ok(Opening { speech: Speech::Other, bytes: Bytes::new() });
    }
    let heard = timeout(patience, hear(stream, &mut bytes, target)).await;
    let speech = heard.unwrap_or_else(|_elapsed| Err(unclear(Speech::of(&bytes), target)))?;
    Ok(Opening { speech, bytes: bytes.freeze() })
}

async fn hear(stream: &TcpStream, bytes: &mut BytesMut, target: &Target) -> Result<Speech, Unopened> {
    loop {
        match Speech::of(bytes) {
            Speech::Open if read_some(stream, bytes).await? == 0 => return Ok(Speech::Other),
            Speech::Open => {}
            Speech::Tls => return hear_hello(stream, bytes, target).await,
            speech => return Ok(speech),
        }
    }
}

async fn hear_hello(stream: &TcpStream, bytes: &mut BytesMut, target: &Target) -> Result<Speech, Unopened> {
    let refused = |refusal| Unopened::Refused(Speech::Tls, refusal);
    let mut reader = HelloReader::new();
    let mut seen = 0;
    loop {
        match reader.read(bytes.get(seen..).unwrap_or_default()) {
            Hello::Complete(name) => {
                check_name(target, name.as_deref()).map_err(refused)?;
                return Ok(Speech::Tls);
            }
            Hello::Broken(message) => return Err(refused(disagreement(message))),
            Hello::Incomplete => seen = bytes.len(),
        }
        if read_some(stream, bytes).await? == 0 {
            return Err(Unopened::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// What may become TLS or HTTP must not pass as neither.
fn unclear(speech: Speech, target: &Target) -> Unopened {
    let message = format!("the client of `{target}` did not finish its first words in time");
    Unopened::Refused(speech, disagreement(message))
}

/// Memory is taken when there is something to read, not before.
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
