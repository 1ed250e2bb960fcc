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
