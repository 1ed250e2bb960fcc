//! A request's body on its way out: looked at before it leaves, held back where a secret may begin.
//!
//! Bytes leave when the scanner has decided about them. It decides in windows, so a body that is smaller than one is seen
//! whole before its first byte leaves. A body that pauses is decided as far as it goes: whoever streams is not held up. When
//! a secret turns up behind what has left already, the body breaks off and with it the request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ringfence_scan::{Output, Pause, Stream};
use ringfence_types::Refusal;

use crate::answer::{Body, BodyError};
use crate::coding::{Coding, CodingError, Decoder};
use crate::gate::Place;
use crate::look::Look;
use crate::quiet::{self, Quiet};
use crate::steering;

pub(crate) struct Watched {
    inner: Body,
    look: Arc<Look>,
    decoder: Option<Decoder>,
    stream: Option<Stream>,
    /// Of an encoded body, its bytes as they are: there is room between what they say.
    raw: Option<Stream>,
    output: Output,
    /// What came in and has not left.
    held: VecDeque<Bytes>,
    /// Where the first of them begins.
    left: usize,
    came: usize,
    /// How far the scanner must be before so much may leave; one entry for each encoded chunk.
    marks: VecDeque<(usize, usize)>,
    scanned: usize,
    /// How much of an encoded body is decided.
    read: usize,
    may_leave: usize,
    trailers: Option<HeaderMap>,
    /// Frames that are decided.
    ready: VecDeque<Frame<Bytes>>,
    quiet: Quiet,
    phase: Phase,
    stopped: Arc<OnceLock<Refusal>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Flowing,
    /// Everything has come in.
    Over,
    Broken,
}

/// A body that was broken off. The reason is in [`Watched::stopped`].
#[derive(Debug, thiserror::Error)]
#[error("the request was refused")]
pub(crate) struct BrokenOff;

impl Watched {
    pub(crate) fn new(inner: Body, look: Arc<Look>, coding: Coding) -> Self {
        Self {
            stream: Some(look.stream()),
            raw: (coding != Coding::Identity).then(|| look.stream()),
            inner,
            look,
            decoder: Some(Decoder::new(coding)),
            output: Output::findings_only(),
            held: VecDeque::new(),
            left: 0,
            came: 0,
            marks: VecDeque::new(),
            scanned: 0,
            read: 0,
            may_leave: 0,
            trailers: None,
            ready: VecDeque::new(),
            quiet: Quiet::new(quiet::REQUEST),
            phase: Phase::Flowing,
            stopped: Arc::default(),
        }
    }

    /// Why the body was broken off, if it was.
    pub(crate) fn stopped(&self) -> Arc<OnceLock<Refusal>> {
        self.stopped.clone()
    }

    /// Waits until it is known whether the beginning may leave.
    pub(crate) async fn begin(&mut self) -> Result<(), BodyError> {
        std::future::poll_fn(|context| self.fill(context)).await
    }

    /// All of it, if everything has come in and is decided.
    pub(crate) fn length(&self) -> Option<u64> {
        let data = |frame: &Frame<Bytes>| frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
        let has_trailers = self.ready.iter().any(Frame::is_trailers);
        (self.phase == Phase::Over && !has_trailers).then(|| self.ready.iter().map(data).sum())
    }

    /// Reads until there is something that may leave, the end, or a pause.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        loop {
            match self.phase {
                Phase::Broken => return Poll::Ready(Err(BrokenOff.into())),
                _ if !self.ready.is_empty() => return Poll::Ready(Ok(())),
                Phase::Over => return Poll::Ready(Ok(())),
                Phase::Flowing => {}
            }
            let frame = match Pin::new(&mut self.inner).poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    let pause = ready!(self.quiet.poll(context));
                    self.settle(pause);
                    let broken = self.phase == Phase::Broken;
                    return Poll::Ready(if broken { Err(BrokenOff.into()) } else { Ok(()) });
                }
            };
            self.quiet.ended();
            match frame {
                Some(Ok(frame)) => self.take(frame),
                Some(Err(error)) => {
                    self.phase = Phase::Broken;
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

    fn settle(&mut self, pause: Pause) {
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
        // What was too much to decode here was decoded there.
        let _limits = self.raw.take().map(|raw| raw.finish(&mut self.output));
        let trailers = self.trailers.take();
        let found = trailers.as_ref().map_or(Ok(()), |trailers| {
            self.look.trailers(trailers).and_then(|()| steering::check_trailers(trailers))
        });
        let judged = self.judge(refused).and(found);
        if let Err(refusal) = judged {
            return self.break_off(refusal);
        }
        self.may_leave = self.came;
        self.leave();
        self.ready.extend(trailers.map(Frame::trailers));
        self.phase = Phase::Over;
    }

    /// Lets out what the scanner is done with.
    fn decided(&mut self) {
        let refused = self.stream.as_ref().map_or(0, Stream::refused);
        if let Err(refusal) = self.judge(refused) {
            return self.break_off(refusal);
        }
        let decided = self.stream.as_ref().map_or(self.scanned, Stream::decided);
        while let Some((_, came)) = self.marks.front().filter(|(scanned, _)| *scanned <= decided).copied() {
            self.marks.pop_front();
            self.read = came;
        }
        self.may_leave = self.raw.as_ref().map_or(decided, |raw| raw.decided().min(self.read));
        self.leave();
    }

    fn judge(&mut self, refused: u64) -> Result<(), Refusal> {
        for finding in std::mem::take(&mut self.output.findings) {
            self.look.weigh(&finding, Place::Body)?;
        }
        if refused > 0 { Err(self.look.unsearchable("it is more than can be searched")) } else { Ok(()) }
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

    fn unreadable(&mut self, error: CodingError) {
        self.break_off(self.look.unsearchable(&error.to_string()));
    }

    fn break_off(&mut self, refusal: Refusal) {
        // The first reason counts.
        let _known = self.stopped.set(refusal);
        self.ready.clear();
        self.held.clear();
        self.phase = Phase::Broken;
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(frame) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if this.phase == Phase::Over {
                return Poll::Ready(None);
            }
            if let Err(error) = ready!(this.fill(context)) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.phase == Phase::Over && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("came", &self.came).field("left", &self.left).finish_non_exhaustive()
    }
}
