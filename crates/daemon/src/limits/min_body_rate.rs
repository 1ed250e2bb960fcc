//! Minimum rate of request bodies. A client that sends byte by byte would hold its permits without end. A client above
//! the minimum may take as long as it needs.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

/// A body must bring [`LEAST`] bytes in each window, or end.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);
const LEAST: usize = 160 * 1024;

/// Counts the bytes of a body in each window.
#[derive(Debug)]
pub(crate) struct BodyRateMonitor {
    window: Duration,
    came: usize,
    until: Pin<Box<Sleep>>,
}

impl BodyRateMonitor {
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, came: 0, until: Box::pin(sleep(window)) }
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.came = self.came.saturating_add(bytes);
    }

    /// Extends the window by a time in which the daemon did not read.
    pub(crate) fn excuse(&mut self, time: Duration) {
        let until = self.until.deadline() + time;
        self.until.as_mut().reset(until);
    }

    /// Ready when the body is too slow. Only polled while the daemon waits for more of it.
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

/// The body came more slowly than the minimum rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyTooSlow;

impl fmt::Display for BodyTooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request came too slowly, or did not come to its end")
    }
}

impl Error for BodyTooSlow {}

/// A body that fails when it is slower than the minimum rate.
#[derive(Debug)]
pub(crate) struct TimedBody<B> {
    body: B,
    pace: BodyRateMonitor,
}

impl<B> TimedBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, pace: BodyRateMonitor::new(WINDOW) }
    }
}

impl<B> Body for TimedBody<B>
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
            Poll::Pending => this.pace.poll_late(context).map(|()| Some(Err(BodyTooSlow.into()))),
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
        let mut pace = BodyRateMonitor::new(SHORT);
        pace.count(LEAST);
        tokio::time::sleep(SHORT).await;
        let first = poll_fn(|context| Poll::Ready(pace.poll_late(context))).await;
        assert_eq!(first, Poll::Pending, "there was enough in the first");
        poll_fn(|context| pace.poll_late(context)).await;
        pace = BodyRateMonitor::new(SHORT);
        pace.count(LEAST - 1);
        poll_fn(|context| pace.poll_late(context)).await;
    }
}
