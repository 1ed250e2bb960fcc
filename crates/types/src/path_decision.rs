//! Decisions of path rules about one file.

/// What a path rule says about one file of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathDecision {
    /// An ordinary file.
    Open,
    /// Never visible inside: key material, environments, credentials.
    Hidden,
    /// Hidden unless its content is provably public: a certificate or a public key and nothing else.
    HiddenUnlessPublic,
}

/// How much of a directory's future content is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectionExtent {
    Nothing,
    Everything,
    /// With exceptions: each existing file is checked.
    EverythingBut,
}
