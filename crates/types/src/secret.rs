//! Classes and delivery of secrets.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::UnknownKeyword;
use crate::workspace::words;

words! {
    /// Where the value of a secret may be.
    SecretClass("class") {
        /// No process inside: a sandbox gets a placeholder, and the proxy replaces it by the value.
        Provider = "provider",
        /// A tool inside may be given it.
        Tool = "tool",
    }
}

words! {
    /// How a secret gets to what needs it.
    Delivery("delivery") {
        /// As a file in memory that only the user inside can read; a variable says where it is.
        File = "file",
        /// As a variable, which every program inside can read.
        Env = "env",
        /// Not at all: the proxy adds it to requests.
        ProxyOnly = "proxy-only",
    }
}

/// A secret that a session was given, by what may be shown of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SecretUse {
    pub name: String,
    pub reach: SecretReach,
}

/// How far the value of a secret comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretReach {
    /// Commands can read the value.
    Inside,
    /// Commands get a placeholder, and the proxy has the value.
    Proxy,
}
