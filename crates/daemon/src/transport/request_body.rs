//! Request bodies that know whether they were read to the end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

#[derive(Debug)]
pub(crate) struct RequestBody {
    body: Incoming,
    version: Version,
    /// The client waits for `100 Continue`, which the first read of the body sends.
    awaits_continue: bool,
    progress: Arc<AtomicBool>,
}

/// Whether the body was read to its end. Outlives the body.
#[derive(Clone, Debug)]
pub(crate) struct BodyProgress(Arc<AtomicBool>);

impl BodyProgress {
    pub(crate) fn is_complete(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl RequestBody {
    pub(crate) fn of(request: Request<Incoming>) -> (Request<Self>, BodyProgress) {
        let (head, body) = request.into_parts();
        let progress = Arc::new(AtomicBool::new(body.is_end_stream()));
        let awaits_continue = head.headers.contains_key(EXPECT) && !body.is_end_stream();
        let own = Self { body, version: head.version, awaits_continue, progress: Arc::clone(&progress) };
        (Request::from_parts(head, own), BodyProgress(progress))
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn awaits_continue(&self) -> bool {
        self.awaits_continue
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.progress.store(true, Ordering::SeqCst);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
