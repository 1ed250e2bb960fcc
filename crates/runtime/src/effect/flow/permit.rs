//! The permit for one connection.

use std::net::SocketAddr;

use ringfence_egress::DialPermit;
use ringfence_types::{Refusal, TransactionId};

use super::{FlowEffect, unjudged};
use crate::pipeline::Admitted;

/// Permit for one connection of an admitted flow, to a recorded address. The proxy dials nothing without one.
///
/// Code outside can name one but not make one:
///
/// ```
/// use ringfence_runtime::effect::FlowPermit;
/// fn named(permit: FlowPermit) -> Box<dyn ringfence_runtime::DialPermit> { Box::new(permit) }
/// ```
///
/// ```compile_fail,E0451
/// use ringfence_runtime::effect::FlowPermit;
/// fn sneak(address: std::net::SocketAddr) -> FlowPermit { FlowPermit { address, ..unimplemented!() } }
/// ```
#[derive(Debug)]
pub struct FlowPermit {
    address: SocketAddr,
    /// The transaction whose intent names the address.
    #[expect(dead_code, reason = "shown where a connection is debugged")]
    transaction: TransactionId,
}

impl FlowPermit {
    /// Only for the address in the last intent record.
    pub(super) fn of(admitted: &Admitted<FlowEffect>, address: SocketAddr) -> Result<Self, Refusal> {
        if admitted.effect().call.address != Some(address.ip()) {
            return Err(unjudged());
        }
        Ok(Self { address, transaction: admitted.transaction().clone() })
    }
}

impl DialPermit for FlowPermit {
    fn address(&self) -> SocketAddr {
        self.address
    }
}
