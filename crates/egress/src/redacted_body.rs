//! Redacted response body: replaces injected secrets by their placeholders before they reach the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as HttpBody, Frame};
use ringfence_scan::{Finding, PauseLength, ScanOutput, ScanStream, Scanner};

use crate::content_encoding::{ContentDecoder, ContentEncoding};
use crate::credential::CredentialView;
use crate::error_response::{HttpBodyError, ProxyBody};
use crate::flow_gate::{LeakLocation, LeakResponse};
use crate::idle_timer::{self, IdleTimer};
use crate::leak_check::leak;
use crate::live_flow::LiveFlow;

/// Redacts the headers of a response.
pub(crate) fn headers(headers: &mut HeaderMap, echo: &Scanner, about: &RedactionContext) {
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
                LeakLocation::ResponseHeader(name.as_str().to_owned()),
                LeakResponse::Redacted,
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
pub(crate) struct RedactionContext {
    pub(crate) sight: Arc<CredentialView>,
    pub(crate) live: Arc<LiveFlow>,
}

impl RedactionContext {
    fn instead(&self, finding: &Finding) -> String {
        let placeholder = self.sight.placeholder_of(&finding.rule).filter(|_| finding.layers.is_plain());
        // A placeholder inside an encoding would decode to something else.
        placeholder.map_or_else(|| format!("[redacted:{}]", finding.rule), str::to_owned)
    }
}

pub(crate) struct RedactedBody {
    inner: ProxyBody,
    about: RedactionContext,
    decoder: Option<ContentDecoder>,
    stream: Option<ScanStream>,
    output: ScanOutput,
    /// Decoded bytes that were not sent yet.
    held: BytesMut,
    /// Offset of the first of them.
    given: usize,
    trailers: Option<HeaderMap>,
    quiet: IdleTimer,
    echo: Scanner,
}

impl RedactedBody {
    pub(crate) fn new(
        inner: ProxyBody,
        echo: &Scanner,
        coding: ContentEncoding,
        about: RedactionContext,
    ) -> Self {
        Self {
            inner,
            about,
            decoder: Some(ContentDecoder::new(coding)),
            stream: Some(echo.stream()),
            output: ScanOutput::findings_only(),
            held: BytesMut::new(),
            given: 0,
            trailers: None,
            quiet: IdleTimer::new(idle_timer::RESPONSE),
            echo: echo.clone(),
        }
    }

    fn data(&mut self, bytes: &[u8]) -> Result<Bytes, HttpBodyError> {
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

    fn settle(&mut self, pause: PauseLength) -> Bytes {
        let Some(stream) = &mut self.stream else { return Bytes::new() };
        stream.settle(pause, &mut self.output);
        let decided = stream.decided();
        self.give(decided)
    }

    fn finish(&mut self) -> Result<Bytes, HttpBodyError> {
        let (Some(decoder), Some(mut stream)) = (self.decoder.take(), self.stream.take()) else {
            return Ok(Bytes::new());
        };
        let (output, held) = (&mut self.output, &mut self.held);
        decoder.finish(|decoded| {
            held.extend_from_slice(decoded);
            stream.push(decoded, output);
        })?;
        // A limit of the scanner does not abort a download: the plain values were searched for throughout.
        let _limits = stream.finish(&mut self.output);
        let all = self.given + self.held.len();
        Ok(self.give(all))
    }

    /// Returns everything before `decided`, redacted.
    fn give(&mut self, decided: usize) -> Bytes {
        let mut out = BytesMut::new();
        for finding in std::mem::take(&mut self.output.findings) {
            out.extend_from_slice(&self.take_to(finding.start));
            self.take_to(finding.end);
            out.extend_from_slice(self.about.instead(&finding).as_bytes());
            self.about.live.found(leak(&finding, LeakLocation::ResponseBody, LeakResponse::Redacted));
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

impl HttpBody for RedactedBody {
    type Data = Bytes;
    type Error = HttpBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpBodyError>>> {
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

impl std::fmt::Debug for RedactedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redacted").field("given", &self.given).finish_non_exhaustive()
    }
}
