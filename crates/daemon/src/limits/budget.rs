//! Budgets: shared amounts of slots or bytes, and the permits that holders have of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A shared amount. Holders that wait for a part are served in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    free: Arc<Semaphore>,
    total: usize,
}

/// What a holder wants of one budget.
#[derive(Clone, Debug)]
pub(crate) struct BudgetClaim {
    budget: Budget,
    amount: usize,
}

/// What one holder has of one or more budgets, until it drops it.
#[derive(Debug, Default)]
pub(crate) struct Permit(Vec<OwnedSemaphorePermit>);

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(total)), total }
    }

    /// Never more than the whole budget, so that a claim can be met.
    pub(crate) fn claim(&self, amount: usize) -> BudgetClaim {
        BudgetClaim { budget: self.clone(), amount: amount.min(self.total) }
    }

    /// Waits as long as it takes. `None` only if the budget does not exist any more.
    pub(crate) async fn acquire(&self, amount: usize) -> Option<Permit> {
        self.claim(amount).acquire().await
    }

    /// `None`: less than `amount` is free.
    pub(crate) fn try_acquire(&self, amount: usize) -> Option<Permit> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(u32::try_from(amount).ok()?);
        Some(Permit(vec![permit.ok()?]))
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    pub(crate) fn used(&self) -> usize {
        self.total.saturating_sub(self.free())
    }
}

impl BudgetClaim {
    async fn acquire(self) -> Option<Permit> {
        let amount = u32::try_from(self.amount).ok()?;
        Some(Permit(vec![self.budget.free.acquire_many_owned(amount).await.ok()?]))
    }
}

impl Permit {
    /// Acquires all claims in their order. A holder's own budget comes first: what it waits for there does not
    /// queue in front of others. `None`: it took longer than `patience`.
    pub(crate) async fn acquire(claims: Vec<BudgetClaim>, patience: Duration) -> Option<Self> {
        let all = async {
            let mut held = Self::default();
            for claim in claims {
                held.extend(claim.acquire().await?);
            }
            Some(held)
        };
        timeout(patience, all).await.ok().flatten()
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Releases what is beyond `amount` of each budget.
    pub(crate) fn shrink(&mut self, amount: usize) {
        for part in &mut self.0 {
            let rest = part.num_permits().saturating_sub(amount);
            drop(part.split(rest));
        }
    }
}

/// A budget for each key. It is kept while a part of it is taken.
#[derive(Debug)]
pub(crate) struct KeyedBudgets<K> {
    each: usize,
    taken: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl<K: Eq + Hash> KeyedBudgets<K> {
    pub(crate) fn new(each: usize) -> Self {
        Self { each, taken: Mutex::default() }
    }

    pub(crate) fn of(&self, key: K) -> Budget {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, budget| budget.strong_count() > 0);
        if let Some(free) = taken.get(&key).and_then(Weak::upgrade) {
            return Budget { free, total: self.each };
        }
        let budget = Budget::new(self.each);
        let _gone = taken.insert(key, Arc::downgrade(&budget.free));
        budget
    }
}

/// Bytes that hold their permit until the last of them is sent.
pub(crate) fn within_budget<P: Send + Sync + 'static>(bytes: Bytes, permit: Option<Arc<P>>) -> Bytes {
    match permit {
        Some(permit) => Bytes::from_owner(BudgetedBytes { bytes, _permit: permit }),
        None => bytes,
    }
}

struct BudgetedBytes<P> {
    bytes: Bytes,
    _permit: Arc<P>,
}

impl<P> AsRef<[u8]> for BudgetedBytes<P> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_permit_gives_back_what_it_has_when_it_is_dropped() {
        let (own, all) = (Budget::new(2), Budget::new(100));
        let mut held = Permit::acquire(vec![own.claim(1), all.claim(60)], SHORT).await.unwrap();
        assert_eq!((own.used(), all.used()), (1, 60));
        assert!(
            Permit::acquire(vec![own.claim(1), all.claim(60)], SHORT).await.is_none(),
            "it waits in vain"
        );
        assert_eq!(own.used(), 1, "and keeps nothing meanwhile");
        held.shrink(10);
        assert_eq!((own.used(), all.free()), (1, 90));
        drop(held);
        assert_eq!((own.used(), all.used()), (0, 0));
        assert!(all.acquire(1000).await.is_some(), "more than all of it is all of it");
    }

    #[test]
    fn each_key_has_a_budget_of_its_own_that_is_forgotten_with_its_last_permit() {
        let budgets = KeyedBudgets::new(2);
        let first = budgets.of("one").try_acquire(1);
        let second = budgets.of("one").try_acquire(1);
        assert!(first.is_some() && second.is_some() && budgets.of("one").try_acquire(1).is_none());
        assert!(budgets.of("two").try_acquire(1).is_some(), "another key");
        drop(first);
        assert!(budgets.of("one").try_acquire(1).is_some(), "what is given back is there again");
        drop(second);
        let _three = budgets.of("three");
        assert_eq!(budgets.taken.lock().unwrap().len(), 1, "keys without a permit are forgotten");
    }
}
