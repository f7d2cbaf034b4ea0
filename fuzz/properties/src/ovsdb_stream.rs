//! The stream of a database server: however it is cut into pieces, the same messages come out, and each is understood or refused without a
//! panic. An echo is answered with what it held.

use ovsdb::{
    FrameError, FrameLimits, Framer,
    fuzzing::{self, Kind},
};
use serde_json::Value;

/// Small, so that a fuzzer reaches them.
const LIMITS: FrameLimits = FrameLimits { size: 512, depth: 12 };

/// `data` is where the stream is cut (the first four bytes), then the stream.
pub fn check(data: &[u8]) {
    let Some((cuts, stream)) = data.split_at_checked(4) else { return };
    let whole = messages([stream]);
    let bytes = messages(stream.chunks(1));
    let mut places: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) * stream.len() / 255).chain([0, stream.len()]).collect();
    places.sort_unstable();
    let cut = messages(places.windows(2).map(|pair| &stream[pair[0]..pair[1]]));
    assert_eq!(cut, whole, "cut at {places:?}");
    assert_eq!(bytes, whole, "byte by byte");

    for message in whole.0 {
        assert!(message.len() <= LIMITS.size);
        check_message(message);
    }
}

/// The messages, and how the stream ended.
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
    let value: Value = serde_json::from_slice(&message).expect("what was understood is JSON");
    match kind {
        Kind::Answer(id, _) => assert_eq!(value["id"].as_u64(), Some(id)),
        Kind::Update(monitor, params) => {
            assert_eq!(value["params"][0].as_u64(), Some(monitor));
            serde_json::from_str::<Value>(&params).expect("a part of JSON is JSON");
        }
        Kind::Echo(reply) => {
            let reply: Value = serde_json::from_slice(&reply).expect("an answer is JSON");
            assert_eq!((&reply["id"], &reply["result"]), (&value["id"], &value["params"]));
        }
        Kind::Other => {}
    }
}
