//! Sessions through the library, as somebody who builds an agent uses them.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod parity;
#[cfg(test)]
mod secrets;
