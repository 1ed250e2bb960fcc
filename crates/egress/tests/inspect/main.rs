//! Inspected HTTP: what passes, what is given a credential, what is stopped. Every server is on the loopback.

#[cfg(test)]
mod echo;
#[cfg(test)]
mod flow;
#[cfg(test)]
mod inject;
#[cfg(test)]
mod leak;
#[cfg(test)]
mod names;
#[cfg(test)]
mod partial;
#[cfg(test)]
mod sign;
#[cfg(test)]
mod smuggle;
#[cfg(test)]
mod steer;
#[cfg(test)]
mod upstream;
#[cfg(test)]
mod ways;
#[cfg(test)]
mod world;
