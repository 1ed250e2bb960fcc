//! What was typed about containers and their images.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringfence_types::{ImageName, OciRuntime};

/// Where a container is made.
#[derive(Clone, Debug, Args)]
pub(crate) struct ContainerArgs {
    /// Image of `ringfence image list`, with --backend container [default: the first that the policy names]
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<ImageName>,
    /// OCI runtime of the engine: crun, runc or runsc [default: the engine's choice]
    #[arg(long, value_name = "RUNTIME")]
    pub(crate) runtime: Option<OciRuntime>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    /// API socket of Podman or Docker [default: the first of the usual sockets that exists]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) engine: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SignatureArgs {
    /// Output of `cosign download signature`; the image is added only if the signature is valid
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) signature: Option<PathBuf>,
    /// The public key (PEM, ECDSA over P-256) that must have made the signature
    #[arg(long, value_name = "FILE", requires = "signature")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Ringfence runs only images on this list, by the digest that they had when they were added. It never pulls an image.

Examples:
  ringfence image add dev localhost/debian:12              (the engine must have it)
  ringfence image add dev registry.test/dev:1 --signature dev.sig.json --key cosign.pub
  ringfence image build dev rootfs.tar
  ringfence run --backend container --image dev -- make test")]
pub(crate) enum ImageCommand {
    /// List the images, and whether the engine has them
    List {
        #[command(flatten)]
        engine: EngineArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Add an image of the engine to the list, pinned by its digest
    Add {
        name: ImageName,
        /// The image in the engine: a name with a tag, or a digest
        reference: String,
        #[command(flatten)]
        signature: SignatureArgs,
        #[command(flatten)]
        engine: EngineArgs,
    },
    /// Check that the engine has exactly the listed image [default: all images]
    Verify {
        name: Option<ImageName>,
        #[command(flatten)]
        engine: EngineArgs,
    },
    /// Build an image from a tar archive of a root file system, and add it to the list
    Build {
        name: ImageName,
        archive: PathBuf,
        #[command(flatten)]
        engine: EngineArgs,
    },
    /// Remove an image from the list; the engine keeps it
    Rm { name: ImageName },
}
