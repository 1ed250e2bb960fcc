use std::fs;
use std::path::Path;
use std::sync::Arc;

use ringfence_authz::{Authorization, CallPermissions};
use ringfence_ledger::{AppendError, BoundObject, Event, Receipt};
use ringfence_sandbox::{ApprovedFiles, FilePlace};
use ringfence_types::{Access, Call, PolicyLayer, Refusal, RefusalCode, RuleId, TransactionId};

use super::settled::{OpenTransaction, Settled};
use crate::approvals::PresenceLock;
use crate::approvals::binding::{ApprovedObjects, NoCopies, noun};
use crate::session::AgentSession;

/// An allowed call with a durable intent: the only state that can launch, write or dial.
#[derive(Debug)]
pub struct Admitted<E> {
    pub(super) effect: E,
    pub(super) grant: Authorization,
    pub(super) receipt: Receipt,
    pub(super) transaction: TransactionId,
    pub(super) held: Option<PresenceLock>,
    /// The bound objects of the approval.
    pub(super) approved: ApprovedObjects,
}

/// A call in execution. It executes the evaluated call, which is inside the grant.
#[derive(Debug)]
pub(crate) struct Running<E> {
    #[expect(dead_code, reason = "says by its type what may be done")]
    effect: E,
    grant: Authorization,
    pub(crate) settling: OpenTransaction,
    /// Copies of the files that the command was approved with.
    pub(crate) approved: Option<Arc<ApprovedFiles>>,
}

impl<E> Admitted<E> {
    pub(crate) fn effect(&self) -> &E {
        &self.effect
    }

    pub(crate) fn effect_mut(&mut self) -> &mut E {
        &mut self.effect
    }

    pub(crate) fn grant(&self) -> &Authorization {
        &self.grant
    }

    pub(crate) fn transaction(&self) -> &TransactionId {
        &self.transaction
    }

    /// Starts an admitted effect.
    pub(crate) fn start(self, session: &mut AgentSession<'_>) -> Result<Running<E>, Settled> {
        debug_assert!(self.receipt.seq() > 0);
        // The bound objects could be replaced while the sandbox started.
        if let Some(changed) = self.approved.changed() {
            let refusal = replaced(&changed);
            return Err(self.settling().refused(session, refusal));
        }
        Ok(self.running(None))
    }

    /// Starts a command with copies of the checked bytes, so a later replacement by name has no effect.
    pub(crate) fn start_command(self, session: &mut AgentSession<'_>) -> Result<Running<E>, Settled> {
        let permissions = self.grant.permissions();
        match self.approved.copies(|path| place_of(path, permissions)) {
            Ok(files) if files.is_empty() => Ok(self.running(None)),
            Ok(files) => Ok(self.running(Some(Arc::new(files)))),
            Err(NoCopies::Changed(changed)) => {
                let refusal = replaced(&changed);
                Err(self.settling().refused(session, refusal))
            }
            Err(NoCopies::Failed(error)) => {
                let why = format!("cannot copy the files that were approved: {error}");
                Err(self.settling().failed(session, why, None))
            }
        }
    }

    fn running(self, approved: Option<Arc<ApprovedFiles>>) -> Running<E> {
        let (effect, grant, settling) = self.parts();
        Running { effect, grant, settling, approved }
    }

    /// Ends an admitted call before it starts.
    pub(crate) fn settling(self) -> OpenTransaction {
        self.parts().2
    }

    fn parts(self) -> (E, Authorization, OpenTransaction) {
        let fingerprint = self.grant.action().fingerprint().clone();
        let settling = OpenTransaction { transaction: self.transaction, fingerprint, held: self.held };
        (self.effect, self.grant, settling)
    }

    /// Leaves the execution to another process and records only that, because the result is unknown.
    pub(super) fn leave(
        self,
        session: &mut AgentSession<'_>,
        to: &str,
    ) -> Result<TransactionId, AppendError> {
        let event = Event::CallSettled {
            transaction: self.transaction.clone(),
            session: session.id.clone(),
            outcome: None,
            failure: None,
            delegated_to: Some(to.to_owned()),
            notes: Vec::new(),
        };
        session.append(vec![event]).map(|_receipts| self.transaction)
    }
}

impl<E> Running<E> {
    pub(crate) fn grant(&self) -> &Authorization {
        &self.grant
    }

    pub(crate) fn call(&self) -> &Call {
        self.grant.action().call()
    }
}

/// Whether a command can change the file or its name; `None` if neither is in a writable root.
fn place_of(path: &Path, permissions: &CallPermissions) -> Option<FilePlace> {
    let writable = |path: &Path| {
        let mut roots = permissions.roots.iter().filter(|root| root.access == Access::Write);
        roots.any(|root| path.starts_with(root.path.as_path()))
    };
    let real = fs::canonicalize(path).ok()?;
    if writable(&real) {
        return Some(FilePlace::Writable);
    }
    writable(path).then_some(FilePlace::ReadOnly)
}

fn replaced(changed: &BoundObject) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Call,
        rule: RuleId::ApprovalSuperseded.into(),
        message: format!(
            "{} `{}` is not what it was when the answer was given, so nothing was started",
            noun(changed.kind),
            changed.path.display()
        ),
        hint: Some("ask again, and let nothing change it meanwhile".to_owned()),
    }
}
