//! How slowly somebody may send what they have begun to send. Whoever sends byte by byte would keep a place from others for as long as
//! they like; whoever has a slow line and goes on steadily may take the time that it takes.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

/// In each of these there is this much, or the end.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);
const LEAST: usize = 160 * 1024;

/// Watches what comes.
#[derive(Debug)]
pub(crate) struct Pace {
    window: Duration,
    came: usize,
    until: Pin<Box<Sleep>>,
}

impl Pace {
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, came: 0, until: Box::pin(sleep(window)) }
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.came = self.came.saturating_add(bytes);
    }

    /// For so long nobody looked whether anything came.
    pub(crate) fn excuse(&mut self, time: Duration) {
        let until = self.until.deadline() + time;
        self.until.as_mut().reset(until);
    }

    /// Ready when it is too slow. For whoever waits for more of it.
    pub(crate) fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.until.as_mut().poll(context));
            if self.came < LEAST {
                return Poll::Ready(());
            }
            self.came = 0;
            self.until.as_mut().reset(Instant::now() + self.window);
        }
    }
}

/// What is sent was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request came too slowly, or did not come to its end")
    }
}

impl Error for Late {}

/// A body that fails when it comes too slowly.
#[derive(Debug)]
pub(crate) struct Paced<B> {
    body: B,
    pace: Pace,
}

impl<B> Paced<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, pace: Pace::new(WINDOW) }
    }
}

impl<B> Body for Paced<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                this.pace.count(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => this.pace.poll_late(context).map(|()| Some(Err(Late.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn whoever_goes_on_may_take_long_and_whoever_stops_may_not() {
        let mut pace = Pace::new(SHORT);
        pace.count(LEAST);
        tokio::time::sleep(SHORT).await;
        let first = poll_fn(|context| Poll::Ready(pace.poll_late(context))).await;
        assert_eq!(first, Poll::Pending, "there was enough in the first");
        poll_fn(|context| pace.poll_late(context)).await;
        pace = Pace::new(SHORT);
        pace.count(LEAST - 1);
        poll_fn(|context| pace.poll_late(context)).await;
    }
}
