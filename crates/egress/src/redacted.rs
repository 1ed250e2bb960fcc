//! A response on its way in: the secrets that the proxy put into requests do not come back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as HttpBody, Frame};
use ringfence_scan::{Finding, Output, Pause, Scanner, Stream};

use crate::answer::{Body, BodyError};
use crate::coding::{Coding, Decoder};
use crate::credential::Sight;
use crate::gate::{LeakAction, Place};
use crate::look::leak;
use crate::quiet::{self, Quiet};
use crate::shared::Live;

/// The headers of a response, with placeholders where secrets were.
pub(crate) fn headers(headers: &mut HeaderMap, echo: &Scanner, about: &About) {
    let mut dropped: Vec<HeaderName> = Vec::new();
    for (name, value) in headers.iter_mut() {
        if !echo.scan(name.as_str().as_bytes()).is_empty() {
            dropped.push(name.clone());
            continue;
        }
        let findings = echo.scan(value.as_bytes());
        if findings.is_empty() {
            continue;
        }
        let mut clean = BytesMut::new();
        let mut from = 0;
        for finding in &findings {
            clean.extend_from_slice(value.as_bytes().get(from..finding.start).unwrap_or_default());
            clean.extend_from_slice(about.instead(finding).as_bytes());
            from = finding.end;
            about.live.found(leak(
                finding,
                Place::ResponseHeader(name.as_str().to_owned()),
                LeakAction::Redacted,
            ));
        }
        clean.extend_from_slice(value.as_bytes().get(from..).unwrap_or_default());
        *value =
            HeaderValue::from_maybe_shared(clean.freeze()).unwrap_or(HeaderValue::from_static("[redacted]"));
    }
    for name in dropped {
        headers.remove(name);
    }
}

/// What is needed to replace a finding.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) sight: Arc<Sight>,
    pub(crate) live: Arc<Live>,
}

impl About {
    fn instead(&self, finding: &Finding) -> String {
        let placeholder = self.sight.placeholder_of(&finding.rule).filter(|_| finding.layers.is_plain());
        // Inside of an encoding a placeholder would be read as something else.
        placeholder.map_or_else(|| format!("[redacted:{}]", finding.rule), str::to_owned)
    }
}

pub(crate) struct Redacted {
    inner: Body,
    about: About,
    decoder: Option<Decoder>,
    stream: Option<Stream>,
    output: Output,
    /// Decoded, not yet given.
    held: BytesMut,
    /// Where it begins.
    given: usize,
    trailers: Option<HeaderMap>,
    quiet: Quiet,
    echo: Scanner,
}

impl Redacted {
    pub(crate) fn new(inner: Body, echo: &Scanner, coding: Coding, about: About) -> Self {
        Self {
            inner,
            about,
            decoder: Some(Decoder::new(coding)),
            stream: Some(echo.stream()),
            output: Output::findings_only(),
            held: BytesMut::new(),
            given: 0,
            trailers: None,
            quiet: Quiet::new(quiet::RESPONSE),
            echo: echo.clone(),
        }
    }

    fn data(&mut self, bytes: &[u8]) -> Result<Bytes, BodyError> {
        let (Some(decoder), Some(stream)) = (&mut self.decoder, &mut self.stream) else {
            return Ok(Bytes::new());
        };
        let (output, held) = (&mut self.output, &mut self.held);
        decoder.feed(bytes, |decoded| {
            held.extend_from_slice(decoded);
            stream.push(decoded, output);
        })?;
        let decided = stream.decided();
        Ok(self.give(decided))
    }

    fn settle(&mut self, pause: Pause) -> Bytes {
        let Some(stream) = &mut self.stream else { return Bytes::new() };
        stream.settle(pause, &mut self.output);
        let decided = stream.decided();
        self.give(decided)
    }

    fn finish(&mut self) -> Result<Bytes, BodyError> {
        let (Some(decoder), Some(mut stream)) = (self.decoder.take(), self.stream.take()) else {
            return Ok(Bytes::new());
        };
        let (output, held) = (&mut self.output, &mut self.held);
        decoder.finish(|decoded| {
            held.extend_from_slice(decoded);
            stream.push(decoded, output);
        })?;
        // A limit of the search is no reason to break a download: what the values look like was searched for throughout.
        let _limits = stream.finish(&mut self.output);
        let all = self.given + self.held.len();
        Ok(self.give(all))
    }

    /// Everything before `decided`, without what was found in it.
    fn give(&mut self, decided: usize) -> Bytes {
        let mut out = BytesMut::new();
        for finding in std::mem::take(&mut self.output.findings) {
            out.extend_from_slice(&self.take_to(finding.start));
            self.take_to(finding.end);
            out.extend_from_slice(self.about.instead(&finding).as_bytes());
            self.about.live.found(leak(&finding, Place::ResponseBody, LeakAction::Redacted));
        }
        let rest = self.take_to(decided);
        if out.is_empty() {
            return rest.freeze();
        }
        out.extend_from_slice(&rest);
        out.freeze()
    }

    fn take_to(&mut self, end: usize) -> BytesMut {
        let length = end.saturating_sub(self.given).min(self.held.len());
        self.given += length;
        self.held.split_to(length)
    }
}

impl HttpBody for Redacted {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if this.stream.is_none() {
                return Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let bytes = match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => {
                        this.quiet.ended();
                        this.data(&bytes)
                    }
                    Err(frame) => {
                        let mut trailers = frame.into_trailers().unwrap_or_default();
                        headers(&mut trailers, &this.echo, &this.about);
                        this.trailers = Some(trailers);
                        continue;
                    }
                },
                Poll::Ready(None) => this.finish(),
                Poll::Pending => {
                    let pause = ready!(this.quiet.poll(context));
                    Ok(this.settle(pause))
                }
            };
            match bytes {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none() && self.trailers.is_none()
    }
}

impl std::fmt::Debug for Redacted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redacted").field("given", &self.given).finish_non_exhaustive()
    }
}
