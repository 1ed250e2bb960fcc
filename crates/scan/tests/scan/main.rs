//! The scanner through its public face.

#[cfg(test)]
mod allowlist;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod documentation;
#[cfg(test)]
mod stream;
