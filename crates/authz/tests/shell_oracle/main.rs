//! The shell parser against real shells: whatever bash, dash or zsh does with a script that has no gap must be listed.

mod corpus;
mod cover;
mod generate;
mod machine;

fn main() {}
