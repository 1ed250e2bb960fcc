//! Parallel work that survives a failed thread spawn.

use std::thread::{self, Builder};

/// Runs `each` for all items in parallel, with `meanwhile` on this thread. Items without a thread run here afterwards.
/// Returns when all are done.
pub(crate) fn for_each<T: Sync>(
    thread: fn() -> Builder,
    all: &[T],
    each: impl Fn(&T) + Sync,
    meanwhile: impl FnOnce(),
) {
    let each = &each;
    thread::scope(|scope| {
        let begun = all.iter().map(|one| (one, thread().spawn_scoped(scope, move || each(one))));
        let begun: Vec<_> = begun.collect();
        meanwhile();
        for (one, begun) in begun {
            match begun {
                Ok(thread) => {
                    // A panic in one item must not skip the others.
                    if thread.join().is_err() {
                        tracing::error!("a thread panicked");
                    }
                }
                Err(error) => {
                    tracing::error!(error = %error, "cannot spawn a thread; running tasks one after another");
                    each(one);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn done(thread: fn() -> Builder) -> (Vec<u8>, bool) {
        let (seen, mut meanwhile) = (Mutex::new(Vec::new()), false);
        for_each(thread, &[1, 2, 3], |one: &u8| seen.lock().unwrap().push(*one), || meanwhile = true);
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        (seen, meanwhile)
    }

    #[test]
    fn without_a_thread_it_is_done_all_the_same() {
        // A stack size that no system provides.
        let none = || Builder::new().stack_size(1 << 60);
        assert!(none().spawn(|| ()).is_err(), "control: there is no such thread");
        assert_eq!(done(none), (vec![1, 2, 3], true));
        assert_eq!(done(Builder::new), (vec![1, 2, 3], true));
    }

    #[test]
    fn one_that_breaks_keeps_no_other_from_its_turn() {
        let seen = Mutex::new(Vec::new());
        let each = |one: &u8| {
            assert_ne!(*one, 1, "it breaks");
            seen.lock().unwrap().push(*one);
        };
        for_each(Builder::new, &[1, 2], each, || ());
        assert_eq!(seen.into_inner().unwrap(), [2]);
    }
}
