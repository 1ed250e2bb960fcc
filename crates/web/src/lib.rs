//! What HTTP on TCP needs because of browsers: checks of every request before authentication (its `Host`, the page that sent it,
//! the form of its credential), the headers of every response, and the certificate.
//!
//! What it is not: it opens no socket and authenticates no client. No I/O.
//!
//! The attacker controls every byte of a request, and the pages that are open in a browser on this machine. A page of another site
//! can make a browser send requests to loopback, also under its own name that resolves there (DNS rebinding).

mod credential;
mod origin_guard;
mod response_headers;
mod tls;

pub use credential::{CSRF_HEADER, CSRF_PROTOCOL, PROTOCOL, PresentedCredential, shown};
pub use origin_guard::{ListenerName, ListenerNameError, OriginGuard, RequestRejection};
pub use response_headers::{cookie, cookie_gone, secure};
pub use tls::{Certificate, CertificateError, PemPair};
