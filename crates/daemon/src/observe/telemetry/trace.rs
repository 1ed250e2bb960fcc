//! Trace context (W3C), also from clients.

use std::time::SystemTime;

use http::HeaderMap;

const TRACEPARENT: &str = "traceparent";

/// A span, by its trace id and span id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
}

impl TraceContext {
    /// The client's context, if it sent exactly one valid header. The sampled flag is ignored: an agent must not decide
    /// whether its actions are exported.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?.to_str().ok()?;
        if values.next().is_some() { None } else { Self::parse(value) }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // Later versions may append fields.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let [_version, _flags] = [hex::<1>(version)?, hex::<1>(flags)?];
        let context = Self { trace: hex(trace)?, span: hex(span)? };
        (context.trace != [0; 16] && context.span != [0; 8]).then_some(context)
    }

    /// A new span, in the trace of `parent` if there is one.
    pub(super) fn below(parent: Option<Self>) -> Option<Self> {
        let mut random = [0; 24];
        getrandom::fill(&mut random).ok()?;
        let (trace, span) = random.split_at(16);
        let own = Self { trace: trace.try_into().ok()?, span: span.try_into().ok()? };
        Some(parent.map_or(own, |parent| Self { trace: parent.trace, ..own }))
    }
}

/// Lower case only, as the standard requires.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut digits = text.bytes().map(digit);
    let mut bytes = [0; N];
    for byte in &mut bytes {
        *byte = digits.next()?? * 16 + digits.next()??;
    }
    digits.next().is_none().then_some(bytes)
}

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(values: &[&str]) -> Option<TraceContext> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, value.parse().unwrap());
        }
        TraceContext::of_headers(&headers)
    }

    #[test]
    fn a_span_of_whoever_asks_is_taken_over_in_the_form_of_the_standard() {
        let context = read(&[GOOD]).unwrap();
        assert_eq!((context.trace[0], context.span[7]), (0x0a, 0x31));
        assert!(
            read(&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"]).is_some(),
            "not for them to say"
        );
        assert!(read(&["01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later"]).is_some());
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c00-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
            "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(read(&[wrong]), None, "{wrong}");
        }
        assert_eq!(read(&[GOOD, GOOD]), None, "which one is meant");
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn what_is_below_has_the_trace_and_a_number_of_its_own() {
        let parent = read(&[GOOD]).unwrap();
        let child = TraceContext::below(Some(parent)).unwrap();
        assert!(child.trace == parent.trace && child.span != parent.span);
        let (one, two) = (TraceContext::below(None).unwrap(), TraceContext::below(None).unwrap());
        assert!(one.trace != two.trace && one.span != two.span);
    }
}
