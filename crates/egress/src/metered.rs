//! A body whose bytes are counted as they pass, and that may not stand still for ever.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::answer::BodyError;
use crate::gate::FlowEnd;
use crate::limits::Direction;
use crate::shared::Live;
use crate::upstream::Returned;

pub(crate) struct Metered<B> {
    inner: B,
    live: Arc<Live>,
    direction: Direction,
    idle: Duration,
    deadline: Pin<Box<Sleep>>,
    /// The connection that it comes from, for whoever is next.
    returned: Option<Returned>,
}

#[derive(Debug, thiserror::Error)]
enum MeterError {
    #[error("the flow is above a limit")]
    Limit,
    #[error("nothing moved for too long")]
    Idle,
}

impl<B: HttpBody<Data = Bytes, Error = BodyError> + Unpin> Metered<B> {
    pub(crate) fn up(inner: B, live: Arc<Live>, idle: Duration) -> Self {
        let deadline = Box::pin(sleep(idle));
        Self { inner, live, direction: Direction::Up, idle, deadline, returned: None }
    }

    /// The last part of a flow: when it has passed, so has the flow.
    pub(crate) fn down(inner: B, live: Arc<Live>, idle: Duration, returned: Option<Returned>) -> Self {
        let deadline = Box::pin(sleep(idle));
        let mut body = Self { inner, live, direction: Direction::Down, idle, deadline, returned };
        body.check_end();
        body
    }

    /// Whoever takes the frames may not ask again when it knows that this was the last.
    fn check_end(&mut self) {
        if self.inner.is_end_stream() {
            self.over();
        }
    }

    fn over(&mut self) {
        if self.direction == Direction::Down {
            self.live.conclude(FlowEnd::Done);
            if let Some(returned) = self.returned.take() {
                returned.put();
            }
        }
    }

    fn count(&self, frame: &Frame<Bytes>) -> Result<(), BodyError> {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.live.charge(self.direction, bytes).map_err(|refusal| {
            self.live.conclude(FlowEnd::Refused(refusal));
            MeterError::Limit.into()
        })
    }
}

impl<B: HttpBody<Data = Bytes, Error = BodyError> + Unpin> HttpBody for Metered<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(frame) => frame,
            Poll::Pending if this.deadline.as_mut().poll(context).is_ready() => {
                this.live.conclude(FlowEnd::Failed(MeterError::Idle.to_string()));
                Some(Err(MeterError::Idle.into()))
            }
            Poll::Pending => return Poll::Pending,
        };
        this.deadline.as_mut().reset(Instant::now() + this.idle);
        let counted = frame.map(|frame| frame.and_then(|frame| this.count(&frame).map(|()| frame)));
        match &counted {
            Some(Ok(_)) => this.check_end(),
            Some(Err(error)) if this.direction == Direction::Down => {
                this.live.conclude(FlowEnd::Failed(format!("the response broke off: {error}")));
            }
            Some(Err(_)) => {}
            None => this.over(),
        }
        Poll::Ready(counted)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> std::fmt::Debug for Metered<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metered").field("direction", &self.direction).finish_non_exhaustive()
    }
}
