//! Scanned request body: the scanner decides about bytes before they are sent, and bytes that may begin a secret are held back.
//!
//! The scanner decides in windows, so a body smaller than one is scanned whole before its first byte is sent. When a body pauses,
//! the bytes so far are decided, so streams are not delayed. If a secret turns up after bytes were sent, the body is aborted and
//! the request fails.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ringfence_scan::{PauseLength, ScanOutput, ScanStream};
use ringfence_types::Refusal;

use crate::content_encoding::{ContentDecoder, ContentEncoding, ContentEncodingError};
use crate::error_response::{HttpBodyError, ProxyBody};
use crate::flow_gate::LeakLocation;
use crate::idle_timer::{self, IdleTimer};
use crate::leak_check::LeakCheck;
use crate::smuggling_guard;

pub(crate) struct ScannedBody {
    inner: ProxyBody,
    look: Arc<LeakCheck>,
    decoder: Option<ContentDecoder>,
    stream: Option<ScanStream>,
    /// Scans the raw bytes of an encoded body too, because an encoding can hide text between its data.
    raw: Option<ScanStream>,
    output: ScanOutput,
    /// Received bytes that were not sent.
    held: VecDeque<Bytes>,
    /// Offset of the first of them.
    left: usize,
    came: usize,
    /// How far the scanner must be before a raw chunk may be sent; one entry per encoded chunk.
    marks: VecDeque<(usize, usize)>,
    scanned: usize,
    /// Raw bytes of an encoded body that are decided.
    read: usize,
    may_leave: usize,
    trailers: Option<HeaderMap>,
    /// Frames that may be sent.
    ready: VecDeque<Frame<Bytes>>,
    quiet: IdleTimer,
    phase: ScanPhase,
    stopped: Arc<OnceLock<Refusal>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanPhase {
    Flowing,
    /// The body is complete.
    Over,
    Broken,
}

/// The body was aborted. [`ScannedBody::stopped`] has the reason.
#[derive(Debug, thiserror::Error)]
#[error("the request was refused")]
pub(crate) struct BodyAborted;

impl ScannedBody {
    pub(crate) fn new(inner: ProxyBody, look: Arc<LeakCheck>, coding: ContentEncoding) -> Self {
        Self {
            stream: Some(look.stream()),
            raw: (coding != ContentEncoding::Identity).then(|| look.stream()),
            inner,
            look,
            decoder: Some(ContentDecoder::new(coding)),
            output: ScanOutput::findings_only(),
            held: VecDeque::new(),
            left: 0,
            came: 0,
            marks: VecDeque::new(),
            scanned: 0,
            read: 0,
            may_leave: 0,
            trailers: None,
            ready: VecDeque::new(),
            quiet: IdleTimer::new(idle_timer::REQUEST),
            phase: ScanPhase::Flowing,
            stopped: Arc::default(),
        }
    }

    /// Reason of the abort, if there was one.
    pub(crate) fn stopped(&self) -> Arc<OnceLock<Refusal>> {
        self.stopped.clone()
    }

    /// Waits until the scanner has decided about the first bytes.
    pub(crate) async fn begin(&mut self) -> Result<(), HttpBodyError> {
        std::future::poll_fn(|context| self.fill(context)).await
    }

    /// Total length, if the body is complete and decided.
    pub(crate) fn length(&self) -> Option<u64> {
        let data = |frame: &Frame<Bytes>| frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
        let has_trailers = self.ready.iter().any(Frame::is_trailers);
        (self.phase == ScanPhase::Over && !has_trailers).then(|| self.ready.iter().map(data).sum())
    }

    /// Reads until bytes may be sent, the body ends, or it pauses.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), HttpBodyError>> {
        loop {
            match self.phase {
                ScanPhase::Broken => return Poll::Ready(Err(BodyAborted.into())),
                _ if !self.ready.is_empty() => return Poll::Ready(Ok(())),
                ScanPhase::Over => return Poll::Ready(Ok(())),
                ScanPhase::Flowing => {}
            }
            let frame = match Pin::new(&mut self.inner).poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    let pause = ready!(self.quiet.poll(context));
                    self.settle(pause);
                    let broken = self.phase == ScanPhase::Broken;
                    return Poll::Ready(if broken { Err(BodyAborted.into()) } else { Ok(()) });
                }
            };
            self.quiet.ended();
            match frame {
                Some(Ok(frame)) => self.take(frame),
                Some(Err(error)) => {
                    self.phase = ScanPhase::Broken;
                    return Poll::Ready(Err(error));
                }
                None => self.finish(),
            }
        }
    }

    fn take(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(bytes) => self.data(bytes),
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    self.trailers = Some(trailers);
                }
            }
        }
    }

    fn data(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let (Some(decoder), Some(stream)) = (&mut self.decoder, &mut self.stream) else { return };
        let (output, scanned) = (&mut self.output, &mut self.scanned);
        let fed = decoder.feed(&bytes, |decoded| {
            *scanned += decoded.len();
            stream.push(decoded, output);
        });
        self.came += bytes.len();
        if let Some(raw) = &mut self.raw {
            raw.push(&bytes, &mut self.output);
            self.marks.push_back((self.scanned, self.came));
        }
        self.held.push_back(bytes);
        match fed {
            Ok(()) => self.decided(),
            Err(error) => self.unreadable(error),
        }
    }

    fn settle(&mut self, pause: PauseLength) {
        for stream in [&mut self.stream, &mut self.raw].into_iter().flatten() {
            stream.settle(pause, &mut self.output);
        }
        self.decided();
    }

    fn finish(&mut self) {
        let (Some(decoder), Some(mut stream)) = (self.decoder.take(), self.stream.take()) else { return };
        let output = &mut self.output;
        if let Err(error) = decoder.finish(|decoded| stream.push(decoded, output)) {
            return self.unreadable(error);
        }
        let refused = stream.finish(&mut self.output);
        // Its decoding limits do not matter: the decoded stream was scanned separately.
        let _limits = self.raw.take().map(|raw| raw.finish(&mut self.output));
        let trailers = self.trailers.take();
        let found = trailers.as_ref().map_or(Ok(()), |trailers| {
            self.look.trailers(trailers).and_then(|()| smuggling_guard::check_trailers(trailers))
        });
        let judged = self.judge(refused).and(found);
        if let Err(refusal) = judged {
            return self.break_off(refusal);
        }
        self.may_leave = self.came;
        self.leave();
        self.ready.extend(trailers.map(Frame::trailers));
        self.phase = ScanPhase::Over;
    }

    /// Releases bytes that the scanner has decided about.
    fn decided(&mut self) {
        let refused = self.stream.as_ref().map_or(0, ScanStream::refused);
        if let Err(refusal) = self.judge(refused) {
            return self.break_off(refusal);
        }
        let decided = self.stream.as_ref().map_or(self.scanned, ScanStream::decided);
        while let Some((_, came)) = self.marks.front().filter(|(scanned, _)| *scanned <= decided).copied() {
            self.marks.pop_front();
            self.read = came;
        }
        self.may_leave = self.raw.as_ref().map_or(decided, |raw| raw.decided().min(self.read));
        self.leave();
    }

    fn judge(&mut self, refused: u64) -> Result<(), Refusal> {
        for finding in std::mem::take(&mut self.output.findings) {
            self.look.apply_policy(&finding, LeakLocation::Body)?;
        }
        if refused > 0 { Err(self.look.scan_failed("it is more than can be searched")) } else { Ok(()) }
    }

    fn leave(&mut self) {
        while self.left < self.may_leave {
            let Some(first) = self.held.front_mut() else { return };
            let now = first.split_to(first.len().min(self.may_leave - self.left));
            if !first.has_remaining() {
                self.held.pop_front();
            }
            self.left += now.len();
            self.ready.push_back(Frame::data(now));
        }
    }

    fn unreadable(&mut self, error: ContentEncodingError) {
        self.break_off(self.look.scan_failed(&error.to_string()));
    }

    fn break_off(&mut self, refusal: Refusal) {
        // The first reason is kept.
        let _known = self.stopped.set(refusal);
        self.ready.clear();
        self.held.clear();
        self.phase = ScanPhase::Broken;
    }
}

impl HttpBody for ScannedBody {
    type Data = Bytes;
    type Error = HttpBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpBodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(frame) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if this.phase == ScanPhase::Over {
                return Poll::Ready(None);
            }
            if let Err(error) = ready!(this.fill(context)) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.phase == ScanPhase::Over && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl std::fmt::Debug for ScannedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("came", &self.came).field("left", &self.left).finish_non_exhaustive()
    }
}
