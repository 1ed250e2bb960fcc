//! The public API as other crates see it, on real files and with real processes.

#[cfg(test)]
mod archive;
#[cfg(test)]
mod bounded;
#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod chain;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod documentation;
#[cfg(test)]
mod file_permissions;
#[cfg(test)]
mod long;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod pruning;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod signing;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tampering;
#[cfg(test)]
mod together;
