//! Conversion of errors to gRPC statuses.

use std::collections::HashMap;

use ringfence_api::{ApiError, ErrorCode};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Of `google.rpc.ErrorInfo`.
const DOMAIN: &str = "ringfence";
/// Maximum length of a status, which is sent in headers. Clients limit their size.
const LONGEST: usize = 1024;

/// The closest gRPC code. The exact error code is in the details.
pub fn code(code: ErrorCode) -> Code {
    match code {
        ErrorCode::InvalidArgument => Code::InvalidArgument,
        ErrorCode::Unauthenticated => Code::Unauthenticated,
        ErrorCode::Forbidden | ErrorCode::Refused => Code::PermissionDenied,
        ErrorCode::NotFound => Code::NotFound,
        ErrorCode::FailedPrecondition => Code::FailedPrecondition,
        ErrorCode::TooLarge | ErrorCode::ResourceExhausted => Code::ResourceExhausted,
        ErrorCode::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorCode::Unavailable => Code::Unavailable,
        ErrorCode::Internal => Code::Internal,
    }
}

/// Builds a status with a `google.rpc.ErrorInfo`: the error code is its reason; hint, rule and request id are its metadata.
pub fn status(code: Code, error: &ApiError) -> Status {
    let said = [
        ("hint", error.hint.as_deref()),
        ("rule", error.rule.as_deref()),
        ("request-id", error.request_id.as_deref()),
    ];
    let said = said.into_iter().filter_map(|(name, text)| Some((name.to_owned(), short(text?))));
    let metadata: HashMap<String, String> = said.collect();
    let details = ErrorDetails::with_error_info(crate::responses::word(&error.code), DOMAIN, metadata);
    Status::with_error_details(code, short(&error.message), details)
}

fn short(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST);
    match text.split_at_checked(end) {
        Some((short, rest)) if !rest.is_empty() => format!("{short}…"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_types::RuleId;

    use super::*;

    #[test]
    fn an_error_is_told_with_all_that_would_change_the_answer() {
        for code in ErrorCode::ALL {
            let mut error = ApiError::new(*code, "no").with_hint("ask\nanother").with_rule(RuleId::PathOpen);
            error.request_id = Some("req_1".to_owned());
            let told = status(super::code(*code), &error);
            assert_ne!(told.code(), Code::Ok);
            let info = told.get_error_details().error_info().cloned().unwrap();
            let read: ErrorCode = serde_json::from_value(info.reason.into()).unwrap();
            assert_eq!((read, info.domain.as_str()), (*code, DOMAIN));
            assert_eq!(
                (&info.metadata["hint"], &info.metadata["rule"]),
                (&"ask\nanother".to_owned(), &"path.open".to_owned())
            );
            assert_eq!(info.metadata["request-id"], "req_1");
        }
    }

    /// `docs/errors.md` lists the numbers of every transport for each code.
    #[test]
    fn the_table_of_errors_has_every_code_with_its_numbers() {
        let page = include_str!("../../../docs/errors.md");
        for code in ErrorCode::ALL {
            let name = crate::responses::word(code);
            let grpc = format!("{:?}", super::code(*code));
            let row =
                page.lines().find(|line| line.starts_with(&format!("| `{name}` |")) && line.contains("-32"));
            let cells: Vec<&str> = row.unwrap_or_default().split('|').map(str::trim).collect();
            let [.., http, json_rpc, spelt, _] = cells[..] else { panic!("no row for `{name}`") };
            assert_eq!(
                (http, json_rpc),
                (&*code.http().to_string(), &*code.json_rpc().to_string()),
                "{name}"
            );
            assert_eq!(spelt.replace(['`', '_'], "").to_lowercase(), grpc.to_lowercase(), "{name}");
        }
    }

    #[test]
    fn what_is_told_fits_into_headers() {
        let told = status(Code::Internal, &ApiError::new(ErrorCode::Internal, "\u{20ac}".repeat(10_000)));
        assert!(told.message().len() <= LONGEST + '…'.len_utf8() && told.message().ends_with("\u{20ac}…"));
    }
}
