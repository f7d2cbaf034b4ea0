//! The stream of a database server: however it is cut into pieces, the same messages come out, and
//! each is parsed or refused without a panic. The answer to an echo has its parameters. A message
//! that is both too large and too deep may be refused for either reason.

use ovsdb::{
    FrameError, FrameLimits, Framer,
    fuzzing::{self, Kind},
};
use serde_json::Value;

/// Small limits, which a fuzzer reaches.
const LIMITS: FrameLimits = FrameLimits { size: 512, depth: 12 };

/// The first four bytes of `data` are the places where the stream is cut; the rest is the stream.
pub fn check(data: &[u8]) {
    let Some((cuts, stream)) = data.split_at_checked(4) else { return };
    let whole = messages([stream]);
    let mut places: Vec<usize> = cuts
        .iter()
        .map(|cut| usize::from(*cut) * stream.len() / 255)
        .chain([0, stream.len()])
        .collect();
    places.sort_unstable();
    let cut = messages(places.windows(2).map(|pair| &stream[pair[0]..pair[1]]));
    for (how, pieces) in [
        (format!("cut at {places:?}"), cut),
        ("byte by byte".to_owned(), messages(stream.chunks(1))),
    ] {
        assert_eq!(pieces.0, whole.0, "{how}");
        assert_eq!(
            pieces.1.is_some(),
            whole.1.is_some(),
            "{how}: {:?} and {:?}",
            pieces.1,
            whole.1
        );
    }

    for message in whole.0 {
        assert!(message.len() <= LIMITS.size);
        check_message(message);
    }
}

/// The messages of a stream, and the error that ended it.
fn messages<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut framer = Framer::new(LIMITS);
    let mut found = Vec::new();
    for piece in pieces {
        framer.push(piece);
        loop {
            match framer.next_message() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn check_message(message: Vec<u8>) {
    let Ok(kind) = fuzzing::read(message.clone()) else { return };
    // Only a number out of range, in a part that `read` skips, can prevent a parsed message from
    // being a JSON value.
    let Ok(value) = serde_json::from_slice::<Value>(&message) else { return };
    match kind {
        Kind::Answer(id, _) => assert_eq!(value["id"].as_u64(), Some(id)),
        Kind::Update(monitor, params) => {
            assert_eq!(value["params"][0].as_u64(), Some(monitor));
            assert_eq!(serde_json::from_str::<Value>(&params).ok(), Some(value["params"].clone()));
        }
        Kind::Echo(reply) => {
            let reply: Value = serde_json::from_slice(&reply).expect("an answer is JSON");
            assert_eq!((&reply["id"], &reply["result"]), (&value["id"], &value["params"]));
        }
        Kind::Other => {}
    }
}
