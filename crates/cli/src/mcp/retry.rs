//! Approvals in protocol versions without server requests: the call is answered with a form and repeated with
//! the reply.
//!
//! The client carries a state between both. It is sealed with a key of this process and bound to the tool,
//! its arguments and the time. It counts once, for the pending approval only.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitResult, InputRequest, InputRequiredResult, RequestStateCodec,
    RequestStateError, SealOptions,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::elicit::ElicitForm;
use super::server::PendingToolCall;

/// The name of the input request.
const NAME: &str = "approve";

/// Why there is no key to seal states with.
#[derive(Debug, thiserror::Error)]
pub(super) enum SealKeyError {
    #[error("there is no randomness")]
    Random(#[from] getrandom::Error),
    #[error("the key for states cannot be used")]
    Key(#[from] RequestStateError),
}

#[derive(Debug)]
pub(super) struct Retries {
    codec: RequestStateCodec,
    /// Calls run in order, so at most one is parked.
    waiting: Mutex<Option<ParkedCall>>,
}

/// A call that waits for its user's reply.
#[derive(Debug)]
struct ParkedCall {
    id: [u8; 16],
    form: ElicitForm,
    underway: PendingToolCall,
}

fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map(|()| bytes)
}

/// What a state is bound to.
pub(super) fn bound(request: &CallToolRequestParams) -> Vec<u8> {
    let arguments = Value::Object(request.arguments.clone().unwrap_or_default()).to_string();
    let mut bound = request.name.as_bytes().to_vec();
    bound.push(0);
    bound.extend(Sha256::digest(arguments));
    bound
}

impl Retries {
    pub(super) fn new() -> Result<Self, SealKeyError> {
        let codec = RequestStateCodec::try_new(random::<32>()?)?;
        Ok(Self { codec, waiting: Mutex::new(None) })
    }

    /// Parks the call and returns the form.
    pub(super) fn park(
        &self,
        form: ElicitForm,
        bound: &[u8],
        underway: PendingToolCall,
    ) -> Result<InputRequiredResult, ErrorData> {
        let internal = |why: String| ErrorData::internal_error(why, None);
        let id = random::<16>().map_err(|error| internal(error.to_string()))?;
        let sealed = self.codec.seal_with(&id, &SealOptions::new().associated_data(bound).ttl(form.left));
        let request = InputRequest::Elicitation(ElicitRequest::new(form.params.clone()));
        let mut waiting =
            self.waiting.lock().map_err(|_broken| internal("the approval state failed".to_owned()))?;
        *waiting = Some(ParkedCall { id, form, underway });
        Ok(InputRequiredResult::new(Some(BTreeMap::from([(NAME.to_owned(), request)])), Some(sealed)))
    }

    /// The parked call that this request repeats, with its reply delivered.
    pub(super) fn resume(&self, request: &CallToolRequestParams) -> Result<PendingToolCall, ErrorData> {
        let no = |why: &str| ErrorData::invalid_params(why.to_owned(), None);
        let state = request.request_state.as_deref().ok_or_else(|| no("there is no `requestState`"))?;
        let opened = self.codec.open_with(state, &bound(request));
        let id = opened
            .map_err(|_forged| no("`requestState` is not one of ours, not for this call, or too old"))?;
        let mut waiting = self.waiting.lock().map_err(|_broken| no("the approval state failed"))?;
        let parked = match waiting.take() {
            Some(parked) if parked.id.as_slice() == id => parked,
            other => {
                *waiting = other;
                return Err(no("`requestState` was used before, or its approval is closed"));
            }
        };
        let responses = request.input_responses.as_ref().and_then(|responses| responses.get(NAME)).cloned();
        let answer = responses.and_then(|answer| serde_json::from_value::<ElicitResult>(answer).ok());
        // Without a valid reply the approval goes unanswered, which is a denial.
        if let Some(answer) = answer {
            // The call may have been decided elsewhere.
            let _late = parked.form.reply.send(answer);
        }
        Ok(parked.underway)
    }
}
