use ringfence_types::{Call, Layer, Refusal, RefusalCode};

use super::authenticated::Authenticated;
use super::settled::Refused;

/// Bytes that claim to be a call: nothing is known of who asks or whether they may.
#[derive(Debug)]
pub struct Received {
    call: Call,
}

impl Received {
    pub fn new(call: Call) -> Self {
        Self { call }
    }

    /// In-process callers are the owner of this process. Somebody whose effective user is not their real one would
    /// lend rights they were not given, so a set-user-id caller is nobody.
    pub(super) fn authenticate(self) -> Result<Authenticated, Refused> {
        let (real, effective) = (rustix::process::getuid(), rustix::process::geteuid());
        if real == effective {
            return Ok(Authenticated { call: self.call });
        }
        let refusal = Refusal {
            code: RefusalCode::Danger,
            layer: Layer::Floor,
            rule: "caller.set-user-id".to_owned(),
            message: format!("real user {} and effective user {} differ", real.as_raw(), effective.as_raw()),
            hint: Some("do not install ringfence set-user-id".to_owned()),
        };
        Err(Refused::early(self.call, refusal))
    }
}
