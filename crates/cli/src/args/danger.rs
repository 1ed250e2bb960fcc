//! Flags that weaken a guarantee. They exist on the command line only: the user who starts Ringfence types them.

use clap::Args;
use ringfence_authz::DangerFlags;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DangerArgs {
    /// Permit profile `danger` and the backends `none` and `external`
    #[arg(long)]
    danger: bool,
    /// VERY UNSAFE: let profile `danger` see ~/.ssh, ~/.aws and other credential stores
    #[arg(long)]
    allow_sensitive_roots: bool,
    /// VERY UNSAFE: ask about commands of the built-in deny list instead of refusing them
    #[arg(long)]
    allow_denylisted_commands: bool,
}

impl From<DangerArgs> for DangerFlags {
    fn from(typed: DangerArgs) -> Self {
        Self {
            danger: typed.danger,
            allow_sensitive_roots: typed.allow_sensitive_roots,
            allow_denylisted_commands: typed.allow_denylisted_commands,
        }
    }
}
