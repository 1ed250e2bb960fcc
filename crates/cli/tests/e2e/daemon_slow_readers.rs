//! Readers of output who take their time: the command waits for them, and nothing is kept for them meanwhile.

use std::thread;
use std::time::Duration;

use ringfence_api::SessionInfo;
use ringfence_grpc::v1::{self, call_chunk::Chunk};
use serde_json::{Value, json};

use crate::daemon_fixture::Served;
use crate::daemon_socket::Talk;
use crate::grpc_client::Speaker;
use crate::testkit::eventually;

/// More than all pipes, channels and sockets on the way hold together, and no more than a call may print.
pub(crate) const ROUNDS: usize = 100;
const ROUND: usize = 100_000;

/// Prints all of it, and says in `NAME` how far it has come.
pub(crate) fn floods(name: &str) -> [String; 3] {
    let script =
        format!("for n in $(seq {ROUNDS}); do head -c {ROUND} /dev/zero | tr '\\0' x; echo x >>{name}; done");
    ["sh", "-c", &script].map(str::to_owned)
}

pub(crate) fn rounds(served: &Served, name: &str) -> usize {
    served.world.read(name).unwrap_or_default().lines().count()
}

/// Whoever is not read to comes so far and no further.
fn stands_still(served: &Served, name: &str) {
    let mut before = 0;
    eventually("it stands still", || {
        thread::sleep(Duration::from_millis(200));
        let still = rounds(served, name) == before && before > 0;
        before = rounds(served, name);
        still
    });
    assert!(before < ROUNDS, "{before} rounds are all there are");
}

fn over_grpc(served: &Served, session: &SessionInfo) -> usize {
    let speaker = Speaker::at(&served.socket, None);
    let (session, argv) = (session.session.to_string(), floods("grpc").to_vec());
    let command = Some(v1::Command { session, argv, ..Default::default() });
    let mut output =
        speaker.wait(speaker.calls().exec_stream(v1::ExecStreamRequest { command })).unwrap().into_inner();
    let mut bytes = 0;
    let mut paused = false;
    while let Some(chunk) = speaker.next(&mut output).unwrap() {
        match chunk.chunk {
            Some(Chunk::Stdout(piece)) => bytes += piece.len(),
            Some(Chunk::Ended(call)) => assert_eq!(call.exit_code, Some(0)),
            other => panic!("{other:?}"),
        }
        if !paused {
            paused = true;
            stands_still(served, "grpc");
        }
    }
    bytes
}

fn on_a_websocket(served: &Served, session: &SessionInfo) -> usize {
    let mut talk = Talk::open(&served.socket, None).unwrap();
    let run = json!({ "session": session.session, "argv": floods("websocket") });
    let output = talk.call("call.exec-stream", run).unwrap()["subscription"].clone();
    let mut bytes = 0;
    let mut piece = talk.told(&output, |_| true);
    stands_still(served, "websocket");
    while piece["chunk"] != "ended" {
        assert_eq!(piece["chunk"], "stdout", "{piece}");
        bytes += text(&piece["data"]).len();
        piece = talk.told(&output, |_| true);
    }
    assert_eq!(piece["call"]["exit_code"], 0, "{piece}");
    bytes
}

fn text(data: &Value) -> &str {
    data.as_str().unwrap_or_else(|| panic!("{data}"))
}

/// Whoever pauses holds the command up, gets all of it in the end, and nothing of it is in memory meanwhile: whoever prints has
/// not printed it yet.
#[test]
fn a_reader_who_pauses_over_grpc_or_on_a_websocket_holds_the_command_up() {
    let served = Served::new();
    let session = served.session();
    let all = ROUNDS * ROUND;
    thread::scope(|scope| {
        let grpc = scope.spawn(|| over_grpc(&served, &session));
        let websocket = scope.spawn(|| on_a_websocket(&served, &session));
        assert_eq!(grpc.join().unwrap(), all);
        assert_eq!(websocket.join().unwrap(), all);
    });
}
