//! The operator's list of images for sessions, pinned by digest, in `images.toml` in the configuration
//! directory.

mod signature;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

pub use ringfence_types::ImageName;
use ringfence_types::{
    Backend, ContainerSpec, ImageId, OciRuntime, PolicyLayer, Refusal, RefusalCode, RuleId,
};
use serde::{Deserialize, Serialize};

use crate::operator_file::OperatorFileChange;
use crate::policy_files::{PolicyFileError, read_operator};
use crate::session::{HostSetup, SessionSpec};

pub use signature::{ImageSignature, ImageSignatureError, VerifiedSigner};

/// In the configuration directory.
const FILE: &str = "images.toml";

/// The requested image and engine of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    pub name: ImageName,
    pub engine: PathBuf,
    /// `None`: the engine's default.
    pub runtime: Option<OciRuntime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageEntry {
    pub name: ImageName,
    pub id: ImageId,
    /// Verified when the image was listed, and again if policy requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<ImageSignature>,
}

impl ImageEntry {
    pub fn new(name: ImageName, id: ImageId) -> Self {
        Self { name, id, signature: None }
    }
}

/// The image of a session, and how its containers are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectedImage {
    pub(crate) image: ImageEntry,
    pub(crate) spec: ContainerSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageList {
    #[serde(default, rename = "image")]
    entries: Vec<ImageEntry>,
}

/// Why the list cannot be read or changed. The file is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageListError {
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

impl ImageListError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read(error) => Some(error.hint()),
            Self::Known(name) => Some(format!("`ringfence image rm {name}` first")),
            Self::Unknown(_) => Some("`ringfence image list` shows what is on it".to_owned()),
            _ => None,
        }
    }
}

impl ImageList {
    /// A missing list is empty.
    pub fn load(config_dir: &Path) -> Result<Self, ImageListError> {
        let path = config_dir.join(FILE);
        if fs::symlink_metadata(&path).is_err() {
            return Ok(Self::default());
        }
        let read = read_operator(&path, &[])?;
        let wrong = |error: toml::de::Error| ImageListError::Format {
            path: path.clone(),
            what: error.message().to_owned(),
        };
        let images: Self = toml::from_str(&read.text).map_err(wrong)?;
        for (number, image) in images.entries.iter().enumerate() {
            if images.entries.iter().take(number).any(|other| other.name == image.name) {
                return Err(ImageListError::Twice { path, name: image.name.clone() });
            }
        }
        Ok(images)
    }

    pub fn entries(&self) -> &[ImageEntry] {
        &self.entries
    }

    pub fn find(&self, name: &ImageName) -> Option<&ImageEntry> {
        self.entries.iter().find(|image| image.name == *name)
    }

    /// Prepares to add an image. A known name with another digest is refused.
    pub fn add(config_dir: &Path, image: ImageEntry) -> Result<OperatorFileChange, ImageListError> {
        change(config_dir, |images| match images.find(&image.name) {
            Some(known) if known.id != image.id => Err(ImageListError::Known(image.name.clone())),
            _ => {
                // The same image, possibly with a new signature.
                images.entries.retain(|known| known.name != image.name);
                images.entries.push(image.clone());
                Ok(())
            }
        })
    }

    /// Prepares to remove an image.
    pub fn remove(config_dir: &Path, name: &ImageName) -> Result<OperatorFileChange, ImageListError> {
        change(config_dir, |images| {
            let before = images.entries.len();
            images.entries.retain(|image| image.name != *name);
            if images.entries.len() == before { Err(ImageListError::Unknown(name.clone())) } else { Ok(()) }
        })
    }
}

fn change(
    config_dir: &Path,
    edit: impl FnOnce(&mut ImageList) -> Result<(), ImageListError>,
) -> Result<OperatorFileChange, ImageListError> {
    let path = config_dir.join(FILE);
    let wrong = |source| ImageListError::Write { path: path.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(config_dir).map_err(wrong)?;
    // Serialises changes: the second waits and then edits the result of the first.
    let lock = File::open(config_dir).map_err(wrong)?;
    lock.lock().map_err(wrong)?;
    let mut images = ImageList::load(config_dir)?;
    edit(&mut images)?;
    let text = toml::to_string(&images).map_err(|error| wrong(io::Error::other(error)))?;
    OperatorFileChange::replacing(path.clone(), text, lock).map_err(wrong)
}

/// The image for a session in a container.
pub(crate) fn select(setup: &HostSetup, asked: &SessionSpec) -> Result<Option<SelectedImage>, Refusal> {
    match (&asked.image, asked.policy.backend == Some(Backend::Container)) {
        (None, false) => Ok(None),
        (Some(_), false) => Err(refuse(
            RuleId::ImageBackend,
            "an image was named, but the backend is not `container`".to_owned(),
            Some("use --backend container".to_owned()),
        )),
        (None, true) => Err(refuse(
            RuleId::ImageUnnamed,
            "the backend `container` needs an image".to_owned(),
            Some(
                "name one of `ringfence image list` with --image, or as `[container] image` in the policy"
                    .to_owned(),
            ),
        )),
        (Some(wanted), true) => {
            let image = listed(&setup.config_dir, wanted)?;
            signed(&image, asked.policy.container.trusted_keys.as_deref())?;
            let spec = ContainerSpec {
                engine: wanted.engine.clone(),
                image: image.id.clone(),
                runtime: wanted.runtime,
            };
            Ok(Some(SelectedImage { image, spec }))
        }
    }
}

/// Binds answers to the image by its digest.
pub(crate) fn bound(policy: String, chosen: Option<&SelectedImage>) -> String {
    match chosen {
        Some(chosen) => format!("{policy} image {}", chosen.image.id),
        None => policy,
    }
}

fn refuse(rule: RuleId, message: String, hint: Option<String>) -> Refusal {
    Refusal { code: RefusalCode::Profile, layer: PolicyLayer::Operator, rule: rule.into(), message, hint }
}

/// The requested image, if it is listed.
fn listed(config_dir: &Path, wanted: &ImageRequest) -> Result<ImageEntry, Refusal> {
    let images = ImageList::load(config_dir).map_err(|error| {
        refuse(RuleId::ImageList, format!("the list of images cannot be used: {error}"), error.hint())
    })?;
    images.find(&wanted.name).cloned().ok_or_else(|| {
        refuse(
            RuleId::ImageUnlisted,
            format!("the image `{}` is not on the operator's list", wanted.name),
            Some(format!(
                "`ringfence image add {} REFERENCE` puts it there, pinned by its digest",
                wanted.name
            )),
        )
    })
}

fn signed(image: &ImageEntry, keys: Option<&[String]>) -> Result<(), Refusal> {
    let Some(keys) = keys else { return Ok(()) };
    let verified = image.signature.as_ref().map(ImageSignature::verify);
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
    Err(refuse(RuleId::ImageSignature, format!("the image `{name}` {why}"), Some(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, digit: &str) -> ImageEntry {
        ImageEntry::new(name.parse().unwrap(), digit.repeat(64).parse().unwrap())
    }

    /// C-24: a name keeps its digest until the operator changes it.
    #[test]
    fn a_name_keeps_its_digest() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config");
        ImageList::add(&config, listed("dev", "a")).unwrap().make().unwrap();
        ImageList::add(&config, listed("dev", "a")).unwrap().make().unwrap();
        assert!(matches!(ImageList::add(&config, listed("dev", "b")), Err(ImageListError::Known(_))));
        ImageList::add(&config, listed("other", "b")).unwrap().make().unwrap();
        assert_eq!(ImageList::load(&config).unwrap().entries(), [listed("dev", "a"), listed("other", "b")]);
        ImageList::remove(&config, &"dev".parse().unwrap()).unwrap().make().unwrap();
        assert!(matches!(
            ImageList::remove(&config, &"dev".parse().unwrap()),
            Err(ImageListError::Unknown(_))
        ));
        assert_eq!(ImageList::load(&config).unwrap().entries(), [listed("other", "b")]);
    }

    #[test]
    fn a_list_that_is_not_understood_is_refused_whole() {
        let directory = tempfile::tempdir().unwrap();
        let twice =
            toml::to_string(&ImageList { entries: vec![listed("a", "1"), listed("a", "2")] }).unwrap();
        for text in [
            "image = 1",
            "[[image]]\nname = \"a\"\n",
            "[[images]]\n",
            "[[image]]\nname=\"A b\"\nid=\"x\"",
            &twice,
        ] {
            fs::write(directory.path().join(FILE), text).unwrap();
            assert!(ImageList::load(directory.path()).is_err(), "{text}");
        }
    }
}
