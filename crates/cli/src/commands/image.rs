//! `ringfence image`: the images that sessions may run in.

use std::path::Path;
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_container::{ContainerEngine, EngineError, EngineImage};
use ringfence_runtime::Runtime;
use ringfence_runtime::images::{ImageEntry, ImageList, ImageListError, ImageName, ImageSignature};
use ringfence_runtime::operator_file::OperatorFileChange;
use ringfence_types::ImageId;
use serde::Serialize;

use crate::approval::{self, OperatorRequirement};
use crate::args::{EngineArgs, ImageCommand, SignatureArgs};
use crate::commands::recorded_change::RecordedChange;
use crate::commands::run::{self, print_json};
use crate::engine;
use crate::environment::Environment;
use crate::error;
use crate::output::{OutputFormat, note, say};

/// A listed image is missing in the engine.
const NOT_THERE: u8 = 1;

pub(crate) fn run(command: ImageCommand) -> ExitCode {
    done(command).unwrap_or_else(|code| code)
}

fn done(command: ImageCommand) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    match command {
        ImageCommand::List { engine, json } => list(&environment, &engine, json.into()),
        ImageCommand::Verify { name, engine } => verify(&environment, &engine, name.as_ref()),
        ImageCommand::Add { name, reference, signature, engine } => {
            put(&environment, &engine, &signature, name, |engine| engine.image(&reference))
        }
        ImageCommand::Build { name, archive, engine } => {
            let reference = format!("localhost/ringfence/{name}");
            let unsigned = SignatureArgs { signature: None, key: None };
            put(&environment, &engine, &unsigned, name, |engine| engine.import(&archive, &reference))
        }
        ImageCommand::Rm { name } => {
            let runtime = operator(&environment)?;
            let change = ImageList::remove(&runtime.setup().config_dir, &name).map_err(wrong_list)?;
            make(&runtime, change, format!("image {name} removed"))?;
            say!("`{name}` is off the list");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Only an operator may change the images that agents run in.
fn operator(environment: &Environment) -> Result<Runtime, ExitCode> {
    approval::require(environment, OperatorRequirement::Nothing, "change the list of images")?;
    run::runtime(environment, ApproverPresence::Unattended)
}

fn make(runtime: &Runtime, change: OperatorFileChange, word: String) -> Result<(), ExitCode> {
    let recorded = RecordedChange { before: change.before(), after: change.after(), words: vec![word] };
    recorded.make(runtime, || change.make()).map_err(|error| error.report(|_| None))
}

fn wrong_list(error: ImageListError) -> ExitCode {
    let hint = error.hint();
    error::failed(&error, hint.as_deref())
}

fn put(
    environment: &Environment,
    arguments: &EngineArgs,
    signature: &SignatureArgs,
    name: ImageName,
    image: impl FnOnce(&ContainerEngine) -> Result<EngineImage, EngineError>,
) -> Result<ExitCode, ExitCode> {
    let runtime = operator(environment)?;
    let engine = engine::connect(arguments, environment)?;
    let image = image(&engine).map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let signature = signed(signature, &image)?;
    let listed = ImageEntry { signature, ..ImageEntry::new(name.clone(), image.id.clone()) };
    let signer = listed.signature.as_ref().and_then(|signature| signature.verify().ok());
    let change = ImageList::add(&runtime.setup().config_dir, listed).map_err(wrong_list)?;
    make(&runtime, change, format!("image {name} is {}", image.id))?;
    say!("`{name}` is {} ({} MiB, {} {})", image.id, image.bytes >> 20, engine.kind, engine.version);
    if let Some(signer) = signer {
        say!("signed with the key {} for {}", signer.key, signer.digest);
    }
    Ok(ExitCode::SUCCESS)
}

/// The verified signature, if one is given.
fn signed(arguments: &SignatureArgs, image: &EngineImage) -> Result<Option<ImageSignature>, ExitCode> {
    let (Some(file), Some(key)) = (&arguments.signature, &arguments.key) else { return Ok(None) };
    let checked = ImageSignature::check(file, key, &image.manifests);
    checked.map(Some).map_err(|error| error::failed(&error, error.hint().as_deref()))
}

fn listed(environment: &Environment) -> Result<ImageList, ExitCode> {
    let setup = crate::host::setup(environment, ApproverPresence::Unattended);
    let setup = setup.map_err(|error| error::failed(&error, None))?;
    load(&setup.config_dir)
}

fn load(config_dir: &Path) -> Result<ImageList, ExitCode> {
    ImageList::load(config_dir).map_err(wrong_list)
}

#[derive(Serialize)]
struct ImageJson<'a> {
    name: &'a ImageName,
    id: &'a ImageId,
    /// Unknown if no engine answers.
    present: Option<bool>,
}

#[derive(Serialize)]
struct ImageListJson<'a> {
    schema: u32,
    images: Vec<ImageJson<'a>>,
}

fn list(environment: &Environment, arguments: &EngineArgs, form: OutputFormat) -> Result<ExitCode, ExitCode> {
    let images = listed(environment)?;
    let engine = ContainerEngine::connect(&engine::socket(arguments, environment)).ok();
    let present = |id: &ImageId| engine.as_ref().map(|engine| engine.image(id.as_str()).is_ok());
    let shown = |image: &'_ ImageEntry| present(&image.id);
    if let OutputFormat::Json = form {
        let images = images.entries().iter();
        let images =
            images.map(|image| ImageJson { name: &image.name, id: &image.id, present: shown(image) });
        print_json(&ImageListJson { schema: 1, images: images.collect() });
        return Ok(ExitCode::SUCCESS);
    }
    for image in images.entries() {
        let word = match shown(image) {
            Some(true) => "present",
            Some(false) => "missing",
            None => "no engine",
        };
        say!("{:<20} {word:<10} {}", image.name.as_str(), image.id);
    }
    if images.entries().is_empty() {
        note!("ringfence: the list has no image; `ringfence image add NAME REFERENCE` adds one");
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(
    environment: &Environment,
    arguments: &EngineArgs,
    name: Option<&ImageName>,
) -> Result<ExitCode, ExitCode> {
    let images = listed(environment)?;
    let chosen: Vec<&ImageEntry> = match name {
        None => images.entries().iter().collect(),
        Some(name) => {
            vec![images.find(name).ok_or_else(|| wrong_list(ImageListError::Unknown(name.clone())))?]
        }
    };
    let engine = engine::connect(arguments, environment)?;
    let mut code = ExitCode::SUCCESS;
    for image in chosen {
        match engine.image(image.id.as_str()) {
            Ok(found) if found.id == image.id => say!("{} present {}", image.name, image.id),
            Ok(found) => {
                say!("{} DIFFERENT: the engine answers {} with {}", image.name, image.id, found.id);
                code = ExitCode::from(NOT_THERE);
            }
            Err(EngineError::NoImage(_)) => {
                say!("{} MISSING {}", image.name, image.id);
                code = ExitCode::from(NOT_THERE);
            }
            Err(error) => return Err(error::failed(&error, error.hint().as_deref())),
        }
    }
    Ok(code)
}
