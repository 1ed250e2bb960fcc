use std::process::ExitCode;

use ringfence_runtime::identity::{Lifetime, Meta, Minted, NewToken};
use ringfence_types::CredentialKind;
use serde::Serialize;

use super::{Desk, is_over, rights, summary};
use crate::args::{TokenCommand, TokenCreate};
use crate::commands::run::print_json;
use crate::output::{note, say};

pub(super) fn run(desk: &Desk, command: TokenCommand) -> Result<ExitCode, ExitCode> {
    match command {
        TokenCommand::Create(create) => self::create(desk, &create),
        TokenCommand::List { all, json } => {
            let listed = desk.credentials()?;
            let shown = |meta: &Meta| meta.kind != CredentialKind::Session && (all || !is_over(meta));
            show(&listed.into_iter().filter(shown).collect::<Vec<_>>(), json.into());
            Ok(ExitCode::SUCCESS)
        }
        TokenCommand::Show { id, json } => {
            show(&[desk.find(&id)?], json.into());
            Ok(ExitCode::SUCCESS)
        }
        TokenCommand::Revoke { id } => desk.revoke(&desk.find(&id)?.id),
        TokenCommand::Rotate { id, json } => {
            let found = desk.find(&id)?;
            reveal(&desk.rotate(&found.id)?, json.into());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn create(desk: &Desk, create: &TokenCreate) -> Result<ExitCode, ExitCode> {
    let lifetime = if create.no_expiry {
        Lifetime::Unlimited
    } else {
        let milliseconds = i64::try_from(create.expires.0).unwrap_or(i64::MAX);
        Lifetime::For(jiff::SignedDuration::from_millis(milliseconds))
    };
    let new = NewToken {
        label: create.label.clone(),
        rights: rights(&create.rights)?,
        lifetime,
        operator: create.operator.clone(),
    };
    reveal(&desk.mint(new)?, create.json.into());
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy)]
pub(super) enum Form {
    Text,
    Json,
}

impl From<bool> for Form {
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Schema 1.
#[derive(Serialize)]
struct Revealed<'a> {
    schema: u32,
    token: &'a Meta,
    secret: &'a str,
}

/// The token alone on standard output, so that it can go where it belongs without being seen.
pub(super) fn reveal(minted: &Minted, form: Form) {
    let secret = minted.text.reveal();
    match form {
        Form::Json => print_json(&Revealed { schema: 1, token: &minted.meta, secret: &secret }),
        Form::Text => {
            note!("ringfence: {}: {}", minted.meta.id, summary(&minted.meta));
            note!("  it is shown once, now");
            say!("{}", secret.as_str());
        }
    }
}

/// Schema 1.
#[derive(Serialize)]
struct Listed<'a> {
    schema: u32,
    tokens: &'a [Meta],
}

fn show(metas: &[Meta], form: Form) {
    match form {
        Form::Json => print_json(&Listed { schema: 1, tokens: metas }),
        Form::Text if metas.is_empty() => {
            note!("ringfence: there are no tokens; `ringfence token create` makes one");
        }
        Form::Text => metas.iter().for_each(|meta| {
            say!("{}: {}", meta.id, summary(meta));
            say!("  made {} by {}", meta.made, meta.made_by);
        }),
    }
}
