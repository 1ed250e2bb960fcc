//! What was typed about containers and their images.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringfence_types::{ImageName, OciRuntime};

/// Where a container is made.
#[derive(Clone, Debug, Args)]
pub(crate) struct ContainerArgs {
    /// Image of `ringfence image list` to run in, with --backend container; without it the first of the policy
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<ImageName>,
    /// What the engine has to start containers with: crun, runc or runsc; without it the engine's own choice
    #[arg(long, value_name = "RUNTIME")]
    pub(crate) runtime: Option<OciRuntime>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    /// API socket of Podman or Docker; without it the first of the usual places that has one
    #[arg(long, value_name = "SOCKET")]
    pub(crate) engine: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SignatureArgs {
    /// What `cosign download signature` wrote: the image is put on the list only if it is signed
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) signature: Option<PathBuf>,
    /// The public key (PEM, ECDSA over P-256) that must have made the signature
    #[arg(long, value_name = "FILE", requires = "signature")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Only images on this list are run, by the digest they had when they were put on it. Nothing is ever pulled.

Examples:
  ringfence image add dev localhost/debian:12              (the engine must have it)
  ringfence image add dev registry.test/dev:1 --signature dev.sig.json --key cosign.pub
  ringfence image build dev rootfs.tar
  ringfence run --backend container --image dev -- make test")]
pub(crate) enum ImageCommand {
    /// What is on the list, and whether the engine has it
    List {
        #[command(flatten)]
        engine: EngineArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Put an image of the engine on the list, pinned by its digest
    Add {
        name: ImageName,
        /// How the engine knows it: a name with a tag, or a digest
        reference: String,
        #[command(flatten)]
        signature: SignatureArgs,
        #[command(flatten)]
        engine: EngineArgs,
    },
    /// Does the engine have what is on the list? Without a name: all of it
    Verify {
        name: Option<ImageName>,
        #[command(flatten)]
        engine: EngineArgs,
    },
    /// Make an image from a tar archive of a root file system, and put it on the list
    Build {
        name: ImageName,
        archive: PathBuf,
        #[command(flatten)]
        engine: EngineArgs,
    },
    /// Take an image off the list; the engine keeps it
    Rm { name: ImageName },
}
