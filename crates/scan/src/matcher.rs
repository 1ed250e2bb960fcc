//! Matchers in code, for shapes that are too frequent or too long for a regular expression.

mod assignment;
mod private_key;
mod url;

use std::ops::Range;

use serde::Deserialize;

pub(crate) use private_key::continues as private_key_continues;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Matcher {
    /// `password = "…"`.
    Assignment,
    /// `--password=…`, `--token …`.
    Option,
    /// `scheme://user:…@host`.
    UrlPassword,
    /// `scheme://…@host`.
    UrlToken,
    /// A private key in its armour.
    PrivateKey,
}

impl Matcher {
    /// The secret that the keyword at `hit` announces.
    pub(crate) fn find(self, bytes: &[u8], hit: Range<usize>) -> Option<Range<usize>> {
        match self {
            Self::Assignment => assignment::assigned(bytes, hit),
            Self::Option => assignment::option(bytes, hit),
            Self::UrlPassword => url::password(bytes, hit),
            Self::UrlToken => url::token(bytes, hit),
            Self::PrivateKey => private_key::find(bytes, hit),
        }
    }
}
