//! What every HTTP request is asked before anybody looks at what it wants: where it thinks it is, which page sent it, how it
//! says who it is. No socket, file or clock is touched here.
//!
//! What the attacker controls: every byte of a request, and the pages that a browser on this machine has open. A page of
//! another site can make a browser send requests to loopback, also under a name of its own that leads there (DNS rebinding).

mod answer;
mod credential;
mod guard;
mod tls;

pub use answer::{cookie, cookie_gone, secure};
pub use credential::{CSRF_HEADER, CSRF_PROTOCOL, PROTOCOL, Shown, shown};
pub use guard::{Guard, Site, SiteError, Turned};
pub use tls::{Certificate, Pem, TlsError};
