use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::UnknownWord;
use crate::workspace::words;

words! {
    /// Who may ever hold the value of a secret.
    SecretClass("class") {
        /// Nobody inside: a sandbox gets a placeholder, and the proxy puts the value in its place.
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
