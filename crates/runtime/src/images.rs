//! The images that sessions may run in: named by the operator, pinned by digest, in `images.toml` of the configuration.

mod signature;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ringfence_authz::policy::sha256;
use ringfence_sandbox::container::{ContainerSpec, ImageId};
pub use ringfence_types::ImageName;
use ringfence_types::{Backend, Layer, OciRuntime, Refusal, RefusalCode};
use serde::{Deserialize, Serialize};

use crate::policy_files::{PolicyFileError, read_operator};
use crate::session::{Asked, Setup};
use crate::standing::{Stored, replace};

pub use signature::{Signature, SignatureError, Verified};

/// In the configuration directory.
const FILE: &str = "images.toml";

/// Where a session was asked to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InImage {
    pub name: ImageName,
    pub engine: PathBuf,
    /// `None`: what the engine uses by itself.
    pub runtime: Option<OciRuntime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    pub name: ImageName,
    pub id: ImageId,
    /// Checked when it was put on the list, and again where the policy asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

impl Listed {
    pub fn new(name: ImageName, id: ImageId) -> Self {
        Self { name, id, signature: None }
    }
}

/// The image that a session runs in, and how its containers are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) image: Listed,
    pub(crate) spec: ContainerSpec,
}

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Images {
    #[serde(default, rename = "image")]
    entries: Vec<Listed>,
}

/// Why the list cannot be read or changed. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImagesError {
    #[error(transparent)]
    Read(#[from] PolicyFileError),
    #[error("`{}` is no list of images: {what}", path.display())]
    Format { path: PathBuf, what: String },
    #[error("`{}` names the image `{name}` twice", path.display())]
    Twice { path: PathBuf, name: ImageName },
    #[error("the image `{0}` is on the list already, with another digest")]
    Known(ImageName),
    #[error("there is no image `{0}` on the list")]
    Unknown(ImageName),
    #[error("`{}` cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl ImagesError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read(error) => Some(error.hint()),
            Self::Known(name) => Some(format!("`ringfence image rm {name}` first")),
            Self::Unknown(_) => Some("`ringfence image list` shows what is on it".to_owned()),
            _ => None,
        }
    }
}

impl Images {
    /// A list that is not there is empty.
    pub fn load(config_dir: &Path) -> Result<Self, ImagesError> {
        let path = config_dir.join(FILE);
        if fs::symlink_metadata(&path).is_err() {
            return Ok(Self::default());
        }
        let read = read_operator(&path, &[])?;
        let wrong = |error: toml::de::Error| ImagesError::Format {
            path: path.clone(),
            what: error.message().to_owned(),
        };
        let images: Self = toml::from_str(&read.text).map_err(wrong)?;
        for (number, image) in images.entries.iter().enumerate() {
            if images.entries.iter().take(number).any(|other| other.name == image.name) {
                return Err(ImagesError::Twice { path, name: image.name.clone() });
            }
        }
        Ok(images)
    }

    pub fn entries(&self) -> &[Listed] {
        &self.entries
    }

    pub fn find(&self, name: &ImageName) -> Option<&Listed> {
        self.entries.iter().find(|image| image.name == *name)
    }

    /// Puts an image on the list. Another digest under a name that is known is another image.
    pub fn add(config_dir: &Path, image: Listed) -> Result<Stored, ImagesError> {
        change(config_dir, |images| match images.find(&image.name) {
            Some(known) if known.id != image.id => Err(ImagesError::Known(image.name.clone())),
            _ => {
                // The same image, perhaps with a signature by now.
                images.entries.retain(|known| known.name != image.name);
                images.entries.push(image.clone());
                Ok(())
            }
        })
    }

    pub fn remove(config_dir: &Path, name: &ImageName) -> Result<Stored, ImagesError> {
        change(config_dir, |images| {
            let before = images.entries.len();
            images.entries.retain(|image| image.name != *name);
            if images.entries.len() == before { Err(ImagesError::Unknown(name.clone())) } else { Ok(()) }
        })
    }
}

fn change(
    config_dir: &Path,
    edit: impl FnOnce(&mut Images) -> Result<(), ImagesError>,
) -> Result<Stored, ImagesError> {
    let path = config_dir.join(FILE);
    let wrong = |source| ImagesError::Write { path: path.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(config_dir).map_err(wrong)?;
    // Two changes at once: the second waits and then changes what the first has written.
    let lock = File::open(config_dir).map_err(wrong)?;
    lock.lock().map_err(wrong)?;
    let mut images = Images::load(config_dir)?;
    edit(&mut images)?;
    let text = toml::to_string(&images).map_err(|error| wrong(io::Error::other(error)))?;
    replace(&path, text.as_bytes()).map_err(wrong)?;
    Ok(Stored { sha256: sha256(text.as_bytes()), file: path })
}

/// The image for a session in a container.
pub(crate) fn judge(setup: &Setup, asked: &Asked) -> Result<Option<Chosen>, Refusal> {
    match (&asked.image, asked.policy.backend == Some(Backend::Container)) {
        (None, false) => Ok(None),
        (Some(_), false) => Err(refuse(
            "image.backend",
            "an image was named, but the backend is not `container`".to_owned(),
            Some("use --backend container".to_owned()),
        )),
        (None, true) => Err(refuse(
            "image.unnamed",
            "the backend `container` needs an image".to_owned(),
            Some(
                "name one of `ringfence image list` with --image, or as `[container] image` in the policy"
                    .to_owned(),
            ),
        )),
        (Some(wanted), true) => {
            let image = listed(&setup.config_dir, wanted)?;
            signed(&image, asked.policy.container.signed_by.as_deref())?;
            let spec = ContainerSpec {
                engine: wanted.engine.clone(),
                image: image.id.clone(),
                runtime: wanted.runtime,
            };
            Ok(Some(Chosen { image, spec }))
        }
    }
}

/// Answers hold for one image: its digest is part of what they are bound to.
pub(crate) fn bound(policy: String, chosen: Option<&Chosen>) -> String {
    match chosen {
        Some(chosen) => format!("{policy} image {}", chosen.image.id),
        None => policy,
    }
}

fn refuse(rule: &str, message: String, hint: Option<String>) -> Refusal {
    Refusal { code: RefusalCode::Profile, layer: Layer::Operator, rule: rule.to_owned(), message, hint }
}

/// The image that was asked for, if it is on the list.
fn listed(config_dir: &Path, wanted: &InImage) -> Result<Listed, Refusal> {
    let images = Images::load(config_dir).map_err(|error| {
        refuse("image.list", format!("the list of images cannot be used: {error}"), error.hint())
    })?;
    images.find(&wanted.name).cloned().ok_or_else(|| {
        refuse(
            "image.unlisted",
            format!("the image `{}` is not on the operator's list", wanted.name),
            Some(format!(
                "`ringfence image add {} REFERENCE` puts it there, pinned by its digest",
                wanted.name
            )),
        )
    })
}

fn signed(image: &Listed, keys: Option<&[String]>) -> Result<(), Refusal> {
    let Some(keys) = keys else { return Ok(()) };
    let verified = image.signature.as_ref().map(Signature::verify);
    let why = match verified {
        Some(Ok(verified)) if keys.contains(&verified.key) => return Ok(()),
        Some(Ok(verified)) => {
            format!("is signed with the key {}, which the policy does not name", verified.key)
        }
        Some(Err(error)) => format!("has a signature that does not hold: {error}"),
        None => "has no signature, and the policy asks for one".to_owned(),
    };
    let name = &image.name;
    let hint = format!("`ringfence image add {name} {} --signature FILE --key FILE` checks one", image.id);
    Err(refuse("image.signature", format!("the image `{name}` {why}"), Some(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, digit: &str) -> Listed {
        Listed::new(name.parse().unwrap(), digit.repeat(64).parse().unwrap())
    }

    /// C-24: a name means one digest until the operator says otherwise.
    #[test]
    fn a_name_keeps_its_digest() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config");
        Images::add(&config, listed("dev", "a")).unwrap();
        Images::add(&config, listed("dev", "a")).unwrap();
        assert!(matches!(Images::add(&config, listed("dev", "b")), Err(ImagesError::Known(_))));
        Images::add(&config, listed("other", "b")).unwrap();
        assert_eq!(Images::load(&config).unwrap().entries(), [listed("dev", "a"), listed("other", "b")]);
        Images::remove(&config, &"dev".parse().unwrap()).unwrap();
        assert!(matches!(Images::remove(&config, &"dev".parse().unwrap()), Err(ImagesError::Unknown(_))));
        assert_eq!(Images::load(&config).unwrap().entries(), [listed("other", "b")]);
    }

    #[test]
    fn a_list_that_is_not_understood_is_refused_whole() {
        let directory = tempfile::tempdir().unwrap();
        let twice = toml::to_string(&Images { entries: vec![listed("a", "1"), listed("a", "2")] }).unwrap();
        for text in [
            "image = 1",
            "[[image]]\nname = \"a\"\n",
            "[[images]]\n",
            "[[image]]\nname=\"A b\"\nid=\"x\"",
            &twice,
        ] {
            fs::write(directory.path().join(FILE), text).unwrap();
            assert!(Images::load(directory.path()).is_err(), "{text}");
        }
    }
}
