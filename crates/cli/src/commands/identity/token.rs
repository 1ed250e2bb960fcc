use std::process::ExitCode;

use ringfence_runtime::identity::{CredentialSummary, MintedCredential, NewToken, TokenLifetime};
use ringfence_types::CredentialKind;
use serde::Serialize;

use super::{IdentityBackend, is_over, rights, summary};
use crate::args::{TokenCommand, TokenCreate};
use crate::commands::run::print_json;
use crate::output::{OutputFormat, note, say};

pub(super) fn run(desk: &IdentityBackend, command: TokenCommand) -> Result<ExitCode, ExitCode> {
    match command {
        TokenCommand::Create(create) => self::create(desk, &create),
        TokenCommand::List { all, json } => {
            let listed = desk.credentials()?;
            let shown =
                |meta: &CredentialSummary| meta.kind != CredentialKind::Session && (all || !is_over(meta));
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

fn create(desk: &IdentityBackend, create: &TokenCreate) -> Result<ExitCode, ExitCode> {
    let lifetime = if create.no_expiry {
        TokenLifetime::Unlimited
    } else {
        let milliseconds = i64::try_from(create.expires.0).unwrap_or(i64::MAX);
        TokenLifetime::For(jiff::SignedDuration::from_millis(milliseconds))
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

/// Schema 1.
#[derive(Serialize)]
struct TokenSecretJson<'a> {
    schema: u32,
    token: &'a CredentialSummary,
    secret: &'a str,
}

/// Prints only the token on standard output, so that it can be piped without being shown.
pub(super) fn reveal(minted: &MintedCredential, form: OutputFormat) {
    let secret = minted.text.reveal();
    match form {
        OutputFormat::Json => {
            print_json(&TokenSecretJson { schema: 1, token: &minted.meta, secret: &secret })
        }
        OutputFormat::Text => {
            note!("ringfence: {}: {}", minted.meta.id, summary(&minted.meta));
            note!("  the token is shown only once");
            say!("{}", secret.as_str());
        }
    }
}

/// Schema 1.
#[derive(Serialize)]
struct TokenListJson<'a> {
    schema: u32,
    tokens: &'a [CredentialSummary],
}

fn show(metas: &[CredentialSummary], form: OutputFormat) {
    match form {
        OutputFormat::Json => print_json(&TokenListJson { schema: 1, tokens: metas }),
        OutputFormat::Text if metas.is_empty() => {
            note!("ringfence: there are no tokens; `ringfence token create` makes one");
        }
        OutputFormat::Text => metas.iter().for_each(|meta| {
            say!("{}: {}", meta.id, summary(meta));
            say!("  made {} by {}", meta.created_at, meta.created_by);
        }),
    }
}
