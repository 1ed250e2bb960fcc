/// What a path rule says about one file of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathVerdict {
    /// An ordinary file.
    Open,
    /// Never visible inside: key material, environments, credentials.
    Hidden,
    /// Hidden unless its content is provably public: a certificate or a public key and nothing else.
    HiddenUnlessPublic,
}

/// How much of what may come to be in a directory must not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Nothing,
    Everything,
    /// With exceptions: each file that exists has to be asked about.
    EverythingBut,
}
