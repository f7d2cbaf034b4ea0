//! Pods from the API server: however its responses are cut into pieces, lost, refused or restarted,
//! the control plane and a node's server end up with the existing pods, and never see a state that
//! no pod ever had.

mod api;
mod follow;
mod history;

use std::sync::{Arc, Mutex};

use api::{Answer, End};
use follow::ClusterManagerInputs;

/// Limits on the input: longer inputs take longer and reach no further code.
const LONGEST_STREAM: usize = 1024;
const LONGEST_HISTORY: usize = 200;

/// The list before a stream of arbitrary bytes.
const LIST: &str = r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"namespace":"shop","name":"p0","uid":"u0","resourceVersion":"3"}}]}"#;

/// The first four bytes of `data` are the places where a stream is cut, and the rest is the stream,
/// which starts as JSON; otherwise `data` is the source of a drawn history.
pub fn check(data: &[u8]) {
    match data.split_at_checked(4) {
        Some((cuts, stream)) if stream.first() == Some(&b'{') => {
            check_stream(cuts, &stream[..stream.len().min(LONGEST_STREAM)])
        }
        _ => history::check(&data[..data.len().min(LONGEST_HISTORY)]),
    }
}

/// The result does not depend on the pieces in which the bytes arrive, and the first observation is
/// a complete list.
fn check_stream(cuts: &[u8], stream: &[u8]) {
    let mut places: Vec<usize> = cuts
        .iter()
        .map(|cut| usize::from(*cut) * stream.len() / 255)
        .chain([0, stream.len()])
        .collect();
    places.sort_unstable();
    let cut: Vec<&[u8]> = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
    let whole = heard(&[stream]);
    assert_eq!(heard(&cut), whole, "cut at {places:?}");
    assert_eq!(heard(&stream.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    if let Some(first) = whole.told.first() {
        assert!(matches!(first, ClusterManagerInputs::All(_)), "{first:?} before everything");
    }
}

/// The observations of a stream, the known pods, and the requests.
#[derive(Debug, PartialEq)]
struct Heard {
    told: Vec<ClusterManagerInputs>,
    known: Vec<Option<String>>,
    asked: Vec<String>,
}

fn heard(pieces: &[&[u8]]) -> Heard {
    let body: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
    let asked = Arc::new(Mutex::new(Vec::<String>::new()));
    let paths = Arc::clone(&asked);
    // One stream for each of the two clients, and a list for the client that asks for one first.
    let respond = move |path: &str| {
        let mut paths = paths.lock().expect("no holder of the lock panics");
        let is_of_node = path.contains("fieldSelector");
        let before =
            paths.iter().filter(|path| path.contains("fieldSelector") == is_of_node).count();
        paths.push(path.to_owned());
        match (is_of_node, before) {
            (true, 0) => Answer::json(LIST),
            (true, 1) | (false, 0) => {
                Answer { status: 200, pieces: body.clone(), end: End::Ordinary }
            }
            _ => Answer { status: 200, pieces: Vec::new(), end: End::Never },
        }
    };
    let (told, known) = follow::run(respond, |_| follow::nap());
    let mut asked = asked.lock().expect("no holder of the lock panics").clone();
    // The order of the two clients is arbitrary.
    asked.sort();
    Heard { told, known, asked }
}
