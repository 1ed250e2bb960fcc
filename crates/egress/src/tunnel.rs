//! Tunnel: relays bytes in both directions and counts them.
//!
//! An idle tunnel holds two sockets and no buffer. The relay reads through the stack and keeps only what the other side does not
//! accept at once. A busy direction gets a large buffer, of which a session has a limited number.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ringfence_types::Refusal;
use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::client_hello::{FirstBytes, disagreement};
use crate::flow_gate::FlowEnd;
use crate::limits::TrafficDirection;
use crate::live_flow::LiveFlow;
use crate::rewind_stream::RewindStream;
use crate::settings::ProxyTimeouts;
use crate::sniff::{SniffError, listen};

const BUFFER: usize = 16 * 1024;
/// Full reads in a row before a direction gets a large buffer.
const BUSY: u32 = 4;
/// Larger chunks cause fewer wake-ups on either side.
const LARGE: usize = 1024 * 1024;
/// Idle time after which a large buffer is released.
const LARGE_IDLE: Duration = Duration::from_secs(1);

/// How a tunnel ended.
#[derive(Debug)]
pub(crate) enum TunnelEnd {
    Ended(FlowEnd),
    /// Refused after it was opened; with the client's protocol.
    Refused(Refusal, FirstBytes, TcpStream),
    /// Plain HTTP, of which nothing was forwarded: every request is a flow of its own.
    Http(RewindStream),
}

enum TunnelHalt {
    Http(Bytes),
    Refused(Refusal, FirstBytes),
    Broken(io::Error),
    Idle,
}

impl From<io::Error> for TunnelHalt {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

pub(crate) async fn relay(
    client: RewindStream,
    server: TcpStream,
    live: &LiveFlow,
    times: &ProxyTimeouts,
) -> TunnelEnd {
    let (head, client) = client.into_parts();
    let tunnel = TunnelRelay {
        client: &client,
        server: &server,
        live,
        moved: AtomicU64::new(0),
        half: AtomicBool::new(false),
    };
    let both = async { tokio::try_join!(tunnel.up(head, times.head), tunnel.down()) };
    let ended = tokio::select! {
        ended = both => ended.map(|_| ()),
        () = tunnel.idle(times.idle) => Err(TunnelHalt::Idle),
    };
    let half = tunnel.half.load(Ordering::Relaxed);
    match ended {
        Ok(()) => TunnelEnd::Ended(FlowEnd::Done),
        Err(TunnelHalt::Http(head)) => TunnelEnd::Http(RewindStream::new(head, client)),
        Err(TunnelHalt::Refused(refusal, speech)) => TunnelEnd::Refused(refusal, speech, client),
        Err(TunnelHalt::Idle) => TunnelEnd::Ended(FlowEnd::Failed("nothing passed for too long".to_owned())),
        // One direction had ended and the other was reset, which is a normal end.
        Err(TunnelHalt::Broken(_)) if half => TunnelEnd::Ended(FlowEnd::Done),
        Err(TunnelHalt::Broken(error)) => {
            TunnelEnd::Ended(FlowEnd::Failed(format!("the connection failed: {error}")))
        }
    }
}

struct TunnelRelay<'a> {
    client: &'a TcpStream,
    server: &'a TcpStream,
    live: &'a LiveFlow,
    moved: AtomicU64,
    /// One direction has ended.
    half: AtomicBool,
}

/// One step of a direction.
enum RelayStep {
    Nothing,
    /// Bytes read, and the rest that is still to be sent.
    Moved(usize, Vec<u8>),
    End,
}

impl TunnelRelay<'_> {
    async fn up(&self, head: Bytes, patience: Duration) -> Result<(), TunnelHalt> {
        let target = &self.live.flow().target;
        let opening = match listen(self.client, head, target, patience).await {
            Ok(opening) => opening,
            Err(SniffError::Refused(speech, refusal)) => return Err(TunnelHalt::Refused(refusal, speech)),
            Err(SniffError::Broken(error)) => return Err(TunnelHalt::Broken(error)),
        };
        if opening.speech == FirstBytes::Http {
            return Err(self.hand_over(opening.bytes));
        }
        self.charge(TrafficDirection::Up, opening.bytes.len())?;
        send(self.server, &opening.bytes).await?;
        self.pump(self.client, self.server, TrafficDirection::Up).await
    }

    async fn down(&self) -> Result<(), TunnelHalt> {
        self.pump(self.server, self.client, TrafficDirection::Down).await
    }

    fn hand_over(&self, head: Bytes) -> TunnelHalt {
        if self.moved.load(Ordering::Relaxed) == 0 {
            return TunnelHalt::Http(head);
        }
        let message = format!(
            "the client of `{}` began to speak HTTP after the server had spoken",
            self.live.flow().target
        );
        TunnelHalt::Refused(disagreement(message), FirstBytes::Other)
    }

    async fn pump(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        direction: TrafficDirection,
    ) -> Result<(), TunnelHalt> {
        let mut full = 0;
        loop {
            from.readable().await?;
            match self.step(from, to, direction)? {
                RelayStep::Nothing => {}
                RelayStep::End => break,
                RelayStep::Moved(count, rest) => {
                    send(to, &rest).await?;
                    full = if count == BUFFER { full + 1 } else { 0 };
                }
            }
            if full >= BUSY
                && let Some(_place) = self.live.large_buffer()
            {
                full = 0;
                if self.pour(from, to, direction).await? == RelayState::Ended {
                    break;
                }
            }
        }
        self.half.store(true, Ordering::Relaxed);
        shutdown(to, Shutdown::Write).map_err(|error| TunnelHalt::Broken(error.into()))
    }

    fn step(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        direction: TrafficDirection,
    ) -> Result<RelayStep, TunnelHalt> {
        let mut buffer = [0; BUFFER];
        let count = match from.try_read(&mut buffer) {
            Ok(0) => return Ok(RelayStep::End),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(RelayStep::Nothing),
            Err(error) => return Err(error.into()),
        };
        self.charge(direction, count)?;
        let bytes = buffer.get(..count).unwrap_or_default();
        let sent = match to.try_write(bytes) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(RelayStep::Moved(count, bytes.get(sent..).unwrap_or_default().to_vec()))
    }

    /// Relays in large chunks until the source ends or pauses.
    async fn pour(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        direction: TrafficDirection,
    ) -> Result<RelayState, TunnelHalt> {
        let mut buffer = vec![0; LARGE];
        loop {
            let Ok(ready) = timeout(LARGE_IDLE, from.readable()).await else { return Ok(RelayState::Slowly) };
            ready?;
            let count = match from.try_read(&mut buffer) {
                Ok(0) => return Ok(RelayState::Ended),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            self.charge(direction, count)?;
            send(to, buffer.get(..count).unwrap_or_default()).await?;
        }
    }

    fn charge(&self, direction: TrafficDirection, count: usize) -> Result<(), TunnelHalt> {
        let count = count as u64;
        self.moved.fetch_add(count, Ordering::Relaxed);
        self.live.charge(direction, count).map_err(|refusal| TunnelHalt::Refused(refusal, FirstBytes::Other))
    }

    /// Returns after an idle time of `patience`.
    async fn idle(&self, patience: Duration) {
        let mut seen = self.moved.load(Ordering::Relaxed);
        loop {
            sleep(patience).await;
            let now = self.moved.load(Ordering::Relaxed);
            if now == seen {
                return;
            }
            seen = now;
        }
    }
}

#[derive(PartialEq, Eq)]
enum RelayState {
    Slowly,
    Ended,
}

async fn send(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends last bytes and waits until the client has read them: closing a socket with unread input resets it and discards what was
/// sent.
pub(crate) async fn farewell(client: &TcpStream, words: &[u8]) {
    const PATIENCE: Duration = Duration::from_secs(1);
    const MOST: usize = 256;
    let said = async {
        send(client, words).await?;
        shutdown(client, Shutdown::Write)?;
        let mut unread = vec![0; 4096];
        for _ in 0..MOST {
            client.readable().await?;
            match client.try_read(&mut unread) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
        io::Result::Ok(())
    };
    let _unheard = timeout(PATIENCE, said).await;
}
