//! `ringfence image`: what sessions may run in.

use std::path::Path;
use std::process::ExitCode;

use ringfence_runtime::Runtime;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::container::{Engine, EngineError, Image, ImageId};
use ringfence_runtime::images::{ImageName, Images, ImagesError, Listed, Signature};
use ringfence_runtime::standing::Stored;
use serde::Serialize;

use crate::approval::{self, Need};
use crate::args::{EngineArgs, ImageCommand, SignatureArgs};
use crate::commands::policy::Form;
use crate::commands::run::{self, print_json};
use crate::engine;
use crate::environment::Environment;
use crate::error;
use crate::output::{note, say};

/// What is on the list is not what the engine has.
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
            put(&environment, (&engine, &signature), name, |engine| engine.image(&reference))
        }
        ImageCommand::Build { name, archive, engine } => {
            let reference = format!("localhost/ringfence/{name}");
            let unsigned = SignatureArgs { signature: None, key: None };
            put(&environment, (&engine, &unsigned), name, |engine| engine.import(&archive, &reference))
        }
        ImageCommand::Rm { name } => {
            let runtime = operator(&environment)?;
            let stored = Images::remove(&runtime.setup().config_dir, &name).map_err(wrong_list)?;
            written(&runtime, &stored, &format!("image {name} removed"))?;
            say!("`{name}` is off the list");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whoever changes what agents run in is not an agent.
fn operator(environment: &Environment) -> Result<Runtime, ExitCode> {
    approval::require(environment, Need::Nothing, "change the list of images")?;
    run::runtime(environment, Attendance::Unattended)
}

fn written(runtime: &Runtime, stored: &Stored, change: &str) -> Result<(), ExitCode> {
    runtime.policy_changed(stored, change).map_err(|error| error::failed(&error, error.hint()))
}

fn wrong_list(error: ImagesError) -> ExitCode {
    let hint = error.hint();
    error::failed(&error, hint.as_deref())
}

fn put(
    environment: &Environment,
    (arguments, signature): (&EngineArgs, &SignatureArgs),
    name: ImageName,
    image: impl FnOnce(&Engine) -> Result<Image, EngineError>,
) -> Result<ExitCode, ExitCode> {
    let runtime = operator(environment)?;
    let engine = engine::connect(arguments, environment)?;
    let image = image(&engine).map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let signature = signed(signature, &image)?;
    let listed = Listed { signature, ..Listed::new(name.clone(), image.id.clone()) };
    let signer = listed.signature.as_ref().and_then(|signature| signature.verify().ok());
    let stored = Images::add(&runtime.setup().config_dir, listed).map_err(wrong_list)?;
    written(&runtime, &stored, &format!("image {name} is {}", image.id))?;
    say!("`{name}` is {} ({} MiB, {} {})", image.id, image.bytes >> 20, engine.kind, engine.version);
    if let Some(signer) = signer {
        say!("signed with the key {} for {}", signer.key, signer.digest);
    }
    Ok(ExitCode::SUCCESS)
}

/// Who vouches for it, where somebody was asked for.
fn signed(arguments: &SignatureArgs, image: &Image) -> Result<Option<Signature>, ExitCode> {
    let (Some(file), Some(key)) = (&arguments.signature, &arguments.key) else { return Ok(None) };
    let checked = Signature::check(file, key, &image.manifests);
    checked.map(Some).map_err(|error| error::failed(&error, error.hint().as_deref()))
}

fn listed(environment: &Environment) -> Result<Images, ExitCode> {
    let setup = crate::host::setup(environment, Attendance::Unattended);
    let setup = setup.map_err(|error| error::failed(&error, None))?;
    load(&setup.config_dir)
}

fn load(config_dir: &Path) -> Result<Images, ExitCode> {
    Images::load(config_dir).map_err(wrong_list)
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a ImageName,
    id: &'a ImageId,
    /// Unknown where no engine answers.
    present: Option<bool>,
}

#[derive(Serialize)]
struct List<'a> {
    schema: u32,
    images: Vec<Shown<'a>>,
}

fn list(environment: &Environment, arguments: &EngineArgs, form: Form) -> Result<ExitCode, ExitCode> {
    let images = listed(environment)?;
    let engine = Engine::connect(&engine::socket(arguments, environment)).ok();
    let present = |id: &ImageId| engine.as_ref().map(|engine| engine.image(id.as_str()).is_ok());
    let shown = |image: &'_ Listed| present(&image.id);
    if let Form::Json = form {
        let images = images.entries().iter();
        let images = images.map(|image| Shown { name: &image.name, id: &image.id, present: shown(image) });
        print_json(&List { schema: 1, images: images.collect() });
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
        note!("ringfence: no image is on the list; `ringfence image add NAME REFERENCE` puts one there");
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(
    environment: &Environment,
    arguments: &EngineArgs,
    name: Option<&ImageName>,
) -> Result<ExitCode, ExitCode> {
    let images = listed(environment)?;
    let chosen: Vec<&Listed> = match name {
        None => images.entries().iter().collect(),
        Some(name) => {
            vec![images.find(name).ok_or_else(|| wrong_list(ImagesError::Unknown(name.clone())))?]
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
