//! Layers on real directories. Uppers are made by hand, as overlayfs would, or by overlayfs itself.

mod bench;
mod conflicts;
mod crash;
mod discard;
mod landing;
mod overlay;
mod space;
mod store;
