//! Metered body: counts bytes as they pass and aborts when idle for too long.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::error_response::HttpBodyError;
use crate::flow_gate::FlowEnd;
use crate::limits::TrafficDirection;
use crate::live_flow::LiveFlow;
use crate::upstream::PoolReturn;

pub(crate) struct MeteredBody<B> {
    inner: B,
    live: Arc<LiveFlow>,
    direction: TrafficDirection,
    idle: Duration,
    deadline: Pin<Box<Sleep>>,
    /// Upstream connection, returned to the pool at the end.
    returned: Option<PoolReturn>,
}

#[derive(Debug, thiserror::Error)]
enum MeterError {
    #[error("the flow is above a limit")]
    Limit,
    #[error("nothing moved for too long")]
    Idle,
}

impl<B: HttpBody<Data = Bytes, Error = HttpBodyError> + Unpin> MeteredBody<B> {
    pub(crate) fn up(inner: B, live: Arc<LiveFlow>, idle: Duration) -> Self {
        let deadline = Box::pin(sleep(idle));
        Self { inner, live, direction: TrafficDirection::Up, idle, deadline, returned: None }
    }

    /// Body of a response. Its end is the end of the flow.
    pub(crate) fn down(inner: B, live: Arc<LiveFlow>, idle: Duration, returned: Option<PoolReturn>) -> Self {
        let deadline = Box::pin(sleep(idle));
        let mut body = Self { inner, live, direction: TrafficDirection::Down, idle, deadline, returned };
        body.check_end();
        body
    }

    /// Detects the end early, because a reader that knows the length does not poll again after the last frame.
    fn check_end(&mut self) {
        if self.inner.is_end_stream() {
            self.over();
        }
    }

    fn over(&mut self) {
        if self.direction == TrafficDirection::Down {
            self.live.conclude(FlowEnd::Done);
            if let Some(returned) = self.returned.take() {
                returned.put();
            }
        }
    }

    fn count(&self, frame: &Frame<Bytes>) -> Result<(), HttpBodyError> {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.live.charge(self.direction, bytes).map_err(|refusal| {
            self.live.conclude(FlowEnd::Refused(refusal));
            MeterError::Limit.into()
        })
    }
}

impl<B: HttpBody<Data = Bytes, Error = HttpBodyError> + Unpin> HttpBody for MeteredBody<B> {
    type Data = Bytes;
    type Error = HttpBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpBodyError>>> {
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
            Some(Err(error)) if this.direction == TrafficDirection::Down => {
                this.live.conclude(FlowEnd::Failed(format!("the response was interrupted: {error}")));
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

impl<B> std::fmt::Debug for MeteredBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metered").field("direction", &self.direction).finish_non_exhaustive()
    }
}
