//! Bytes pass between two connections, counted, both ways at once.
//!
//! A tunnel that is silent holds two sockets and no buffer: bytes are read when they are there, through the stack, and
//! only what the other side does not take at once is kept. A direction that is busy has a large buffer meanwhile, of which a
//! session has only so many.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ringfence_types::Refusal;
use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::gate::FlowEnd;
use crate::hello::{Speech, disagreement};
use crate::limits::Direction;
use crate::opening::{Unopened, listen};
use crate::prefixed::Prefixed;
use crate::settings::Times;
use crate::shared::Live;

const BUFFER: usize = 16 * 1024;
/// Reads that fill the buffer, one after the other, before a large one is worth its price.
const BUSY: u32 = 4;
/// What costs is to wake whoever waits on either side: the more passes at once, the less often.
const LARGE: usize = 1024 * 1024;
/// A large buffer that waits this long is given back.
const LARGE_IDLE: Duration = Duration::from_secs(1);

/// How a tunnel ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Ended(FlowEnd),
    /// Refused after it was opened, to a client that speaks this.
    Refused(Refusal, Speech, TcpStream),
    /// It was plain HTTP, of which nothing has passed: every request is to be judged.
    Http(Prefixed),
}

enum Halt {
    Http(Bytes),
    Refused(Refusal, Speech),
    Broken(io::Error),
    Idle,
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

pub(crate) async fn relay(client: Prefixed, server: TcpStream, live: &Live, times: &Times) -> Outcome {
    let (head, client) = client.into_parts();
    let tunnel = Tunnel {
        client: &client,
        server: &server,
        live,
        moved: AtomicU64::new(0),
        half: AtomicBool::new(false),
    };
    let both = async { tokio::try_join!(tunnel.up(head, times.head), tunnel.down()) };
    let ended = tokio::select! {
        ended = both => ended.map(|_| ()),
        () = tunnel.idle(times.idle) => Err(Halt::Idle),
    };
    let half = tunnel.half.load(Ordering::Relaxed);
    match ended {
        Ok(()) => Outcome::Ended(FlowEnd::Done),
        Err(Halt::Http(head)) => Outcome::Http(Prefixed::new(head, client)),
        Err(Halt::Refused(refusal, speech)) => Outcome::Refused(refusal, speech, client),
        Err(Halt::Idle) => Outcome::Ended(FlowEnd::Failed("nothing passed for too long".to_owned())),
        // One side had said all and the other went away without a word: that is how many end.
        Err(Halt::Broken(_)) if half => Outcome::Ended(FlowEnd::Done),
        Err(Halt::Broken(error)) => Outcome::Ended(FlowEnd::Failed(format!("the connection broke: {error}"))),
    }
}

struct Tunnel<'a> {
    client: &'a TcpStream,
    server: &'a TcpStream,
    live: &'a Live,
    moved: AtomicU64,
    /// One direction is at its end.
    half: AtomicBool,
}

/// One step of a direction.
enum Step {
    Nothing,
    /// So many bytes came; these are still to be sent.
    Moved(usize, Vec<u8>),
    End,
}

impl Tunnel<'_> {
    async fn up(&self, head: Bytes, patience: Duration) -> Result<(), Halt> {
        let target = &self.live.flow().target;
        let opening = match listen(self.client, head, target, patience).await {
            Ok(opening) => opening,
            Err(Unopened::Refused(speech, refusal)) => return Err(Halt::Refused(refusal, speech)),
            Err(Unopened::Broken(error)) => return Err(Halt::Broken(error)),
        };
        if opening.speech == Speech::Http {
            return Err(self.hand_over(opening.bytes));
        }
        self.charge(Direction::Up, opening.bytes.len())?;
        send(self.server, &opening.bytes).await?;
        self.pump(self.client, self.server, Direction::Up).await
    }

    async fn down(&self) -> Result<(), Halt> {
        self.pump(self.server, self.client, Direction::Down).await
    }

    fn hand_over(&self, head: Bytes) -> Halt {
        if self.moved.load(Ordering::Relaxed) == 0 {
            return Halt::Http(head);
        }
        let message = format!(
            "the client of `{}` began to speak HTTP after the server had spoken",
            self.live.flow().target
        );
        Halt::Refused(disagreement(message), Speech::Other)
    }

    async fn pump(&self, from: &TcpStream, to: &TcpStream, direction: Direction) -> Result<(), Halt> {
        let mut full = 0;
        loop {
            from.readable().await?;
            match self.step(from, to, direction)? {
                Step::Nothing => {}
                Step::End => break,
                Step::Moved(count, rest) => {
                    send(to, &rest).await?;
                    full = if count == BUFFER { full + 1 } else { 0 };
                }
            }
            if full >= BUSY
                && let Some(_place) = self.live.large_buffer()
            {
                full = 0;
                if self.pour(from, to, direction).await? == Flowing::Ended {
                    break;
                }
            }
        }
        self.half.store(true, Ordering::Relaxed);
        shutdown(to, Shutdown::Write).map_err(|error| Halt::Broken(error.into()))
    }

    fn step(&self, from: &TcpStream, to: &TcpStream, direction: Direction) -> Result<Step, Halt> {
        let mut buffer = [0; BUFFER];
        let count = match from.try_read(&mut buffer) {
            Ok(0) => return Ok(Step::End),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Step::Nothing),
            Err(error) => return Err(error.into()),
        };
        self.charge(direction, count)?;
        let bytes = buffer.get(..count).unwrap_or_default();
        let sent = match to.try_write(bytes) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(Step::Moved(count, bytes.get(sent..).unwrap_or_default().to_vec()))
    }

    /// In large parts, until the source ends or has nothing for a while.
    async fn pour(&self, from: &TcpStream, to: &TcpStream, direction: Direction) -> Result<Flowing, Halt> {
        let mut buffer = vec![0; LARGE];
        loop {
            let Ok(ready) = timeout(LARGE_IDLE, from.readable()).await else { return Ok(Flowing::Slowly) };
            ready?;
            let count = match from.try_read(&mut buffer) {
                Ok(0) => return Ok(Flowing::Ended),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            self.charge(direction, count)?;
            send(to, buffer.get(..count).unwrap_or_default()).await?;
        }
    }

    fn charge(&self, direction: Direction, count: usize) -> Result<(), Halt> {
        let count = count as u64;
        self.moved.fetch_add(count, Ordering::Relaxed);
        self.live.charge(direction, count).map_err(|refusal| Halt::Refused(refusal, Speech::Other))
    }

    /// Returns when nothing has passed for this long.
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
enum Flowing {
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

/// Says the last words to a client and lets it hear them: a socket that is closed with unread bytes takes back what it sent.
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
