use std::process::ExitCode;

use ringfence_api::{CreateToken, ListTokens, MintedToken, RotateToken};
use ringfence_runtime::identity::CredentialSummary;
use ringfence_types::CredentialKind;
use serde::Serialize;
use zeroize::Zeroizing;

use super::{IdentityClient, is_over, rights, summary};
use crate::args::{TokenCommand, TokenCreate};
use crate::commands::run::print_json;
use crate::output::{OutputFormat, note, say};

pub(super) fn run(desk: &IdentityClient, command: TokenCommand) -> Result<ExitCode, ExitCode> {
    match command {
        TokenCommand::Create(create) => self::create(desk, &create),
        TokenCommand::List { all, json } => {
            let listed = desk.ask(ListTokens {})?.tokens;
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
            reveal(desk.ask(RotateToken { id: found.id.to_string() })?, json.into());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn create(desk: &IdentityClient, create: &TokenCreate) -> Result<ExitCode, ExitCode> {
    let new = CreateToken {
        label: create.label.clone(),
        rights: rights(&create.rights)?,
        // Less than a second becomes zero, which is refused.
        lifetime_s: (!create.no_expiry).then_some(create.expires.0 / 1000),
        operator: create.operator.clone(),
    };
    reveal(desk.ask(new)?, create.json.into());
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
pub(super) fn reveal(minted: MintedToken, form: OutputFormat) {
    let MintedToken { token, secret } = minted;
    let secret = Zeroizing::new(secret);
    match form {
        OutputFormat::Json => print_json(&TokenSecretJson { schema: 1, token: &token, secret: &secret }),
        OutputFormat::Text => {
            note!("ringfence: {}: {}", token.id, summary(&token));
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
