//! Gates that wait, refuse and break: closed, and nobody else is held up.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};

use ringfence_egress::{Flow, FlowEnd, FlowTerms, FlowTreatment, FlowVerdict};

use crate::clerk::{Clerk, PASS, only_end, refusal, refuse};
use crate::world::{World, echo, read_head, read_to_end};

fn connect(world: &World, target: &str) -> String {
    world.exchange(format!("CONNECT {target} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes())
}

/// A door that somebody opens later.
#[derive(Default)]
struct Later(Mutex<Option<()>>, Condvar);

impl Later {
    fn wait(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |open| open.is_none()).unwrap());
    }

    fn open(&self) {
        *self.0.lock().unwrap() = Some(());
        self.1.notify_all();
    }
}

fn waiting(later: &Arc<Later>) -> Clerk {
    let later = Arc::clone(later);
    Clerk::with(Box::new(move |flow: &Flow| {
        if flow.target.host.to_string() == "slow.test" {
            later.wait();
        }
        FlowVerdict::Pass(PASS)
    }))
}

#[test]
fn a_decision_that_takes_its_time_holds_up_nobody_else() {
    let (server, later) = (echo(), Arc::new(Later::default()));
    let world = World::new(waiting(&later));
    let mut slow: Vec<_> = (0..50)
        .map(|_| {
            let mut client = world.client();
            write!(client, "CONNECT slow.test:{} HTTP/1.1\r\n\r\n", server.port()).unwrap();
            client
        })
        .collect();
    world.clerk.wait(|book| book.judged.len() == 50);
    for _ in 0..10 {
        drop(world.tunnel(&format!("fast.test:{}", server.port())));
    }
    assert_eq!(world.clerk.after(10).opened.len(), 10);
    later.open();
    for client in &mut slow {
        assert!(read_head(client).starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn nobody_decides_in_time() {
    let later = Arc::new(Later::default());
    let world = World::with(waiting(&later), |settings| {
        settings.times.decision = std::time::Duration::from_millis(50);
    });
    let answer = connect(&world, "slow.test:80");
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("network.decision"), "{answer}");
    later.open();
    assert_eq!(world.clerk.after(1).opened, []);
}

#[test]
fn n24_a_gate_that_breaks_lets_nothing_pass() {
    let world = World::new(Clerk::with(Box::new(|_| panic!("the gate of this test breaks"))));
    let answer = connect(&world, "allowed.test:80");
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("network.gate"), "{answer}");
    assert_eq!(world.clerk.after(1).opened, []);
}

/// The record cannot be written: nothing is dialled. The control is `connect.rs`, where it can be.
#[test]
fn a_flow_that_cannot_be_recorded_does_not_happen() {
    let (dialled, connections) = std::sync::mpsc::channel();
    let server = crate::world::server(move |_| dialled.send(()).unwrap());
    for broken in [false, true] {
        let clerk = Clerk::allowing(&["allowed.test"]).opening(move |_, _| {
            assert!(!broken, "the ledger of this test breaks");
            Err(refusal())
        });
        let world = World::new(clerk);
        let answer = connect(&world, &format!("allowed.test:{}", server.port()));
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(matches!(only_end(&world.clerk.after(1)).2, FlowEnd::Refused(_)));
    }
    assert!(connections.try_recv().is_err());
}

/// B-O9: what is to be inspected is never passed unseen.
#[test]
fn an_inspected_host_that_speaks_neither_tls_nor_http_is_refused() {
    let (dialled, connections) = std::sync::mpsc::channel();
    let server = crate::world::server(move |_| dialled.send(()).unwrap());
    let rule = |_: &Flow| FlowVerdict::Pass(FlowTerms { treatment: FlowTreatment::Inspect, ..PASS });
    let world = World::new(Clerk::with(Box::new(rule)));
    let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    tunnel.write_all(b"SSH-2.0-client\r\n").unwrap();
    assert_eq!(read_to_end(&mut tunnel), "");
    assert!(matches!(only_end(&world.clerk.after(1)).2, FlowEnd::Refused(_)));
    assert!(connections.try_recv().is_err());
}

#[test]
fn a_client_that_goes_away_while_somebody_decides_is_an_end_too() {
    let (server, later) = (echo(), Arc::new(Later::default()));
    let world = World::new(waiting(&later));
    let mut client = world.client();
    write!(client, "CONNECT slow.test:80 HTTP/1.1\r\n\r\n").unwrap();
    world.clerk.wait(|book| book.judged.len() == 1);
    drop(client);
    // Another flow begins and ends meanwhile: the end of the first waits for its judgement, which may write something.
    drop(world.tunnel(&format!("fast.test:{}", server.port())));
    assert!(only_end(&world.clerk.after(1)).1.starts_with("fast.test"));
    later.open();
    let book = world.clerk.after(2);
    assert!(matches!(&book.ended[1].2, FlowEnd::Failed(why) if why.contains("went away")), "{book:?}");
    assert_eq!(book.opened.len(), 1, "{book:?}");
}

#[test]
fn a_change_of_mind_applies_to_the_next_flow() {
    let server = echo();
    let denied = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now = Arc::clone(&denied);
    let world = World::new(Clerk::with(Box::new(move |_| {
        if now.load(std::sync::atomic::Ordering::SeqCst) { refuse() } else { FlowVerdict::Pass(PASS) }
    })));
    let target = format!("allowed.test:{}", server.port());
    drop(world.tunnel(&target));
    denied.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(connect(&world, &target).starts_with("HTTP/1.1 403"));
}

#[test]
fn a_silent_decider_does_not_keep_the_proxy_from_ending() {
    let later = Arc::new(Later::default());
    let mut world = World::new(waiting(&later));
    let mut client = world.client();
    write!(client, "CONNECT slow.test:80 HTTP/1.1\r\n\r\n").unwrap();
    world.clerk.wait(|book| book.judged.len() == 1);
    drop(world.proxy.take());
    assert_eq!(read_to_end(&mut client), "");
    later.open();
    assert_eq!(world.clerk.after(1).ended.len(), 1);
}
