//! What the API server says of pods: however its answers are cut into pieces, lost, refused or begun anew, the control plane and a node's
//! server end up with the pods that there are, and none of them ever is what no pod ever was.

mod api;
mod follow;
mod history;

use std::sync::{Arc, Mutex};

use api::{Answer, End};
use follow::Told;

/// More takes longer and shows nothing else.
const LONGEST_STREAM: usize = 1024;
const LONGEST_HISTORY: usize = 200;

/// The list that comes before a stream of any bytes.
const LIST: &str =
    r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"namespace":"shop","name":"p0","uid":"u0","resourceVersion":"3"}}]}"#;

/// `data` is where a stream is cut (the first four bytes) and the stream, whose first byte is that of JSON; and else what a history is
/// drawn from.
pub fn check(data: &[u8]) {
    match data.split_at_checked(4) {
        Some((cuts, stream)) if stream.first() == Some(&b'{') => check_stream(cuts, &stream[..stream.len().min(LONGEST_STREAM)]),
        _ => history::check(&data[..data.len().min(LONGEST_HISTORY)]),
    }
}

/// The same comes out however the bytes come in, and nothing is told before everything is.
fn check_stream(cuts: &[u8], stream: &[u8]) {
    let mut places: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) * stream.len() / 255).chain([0, stream.len()]).collect();
    places.sort_unstable();
    let cut: Vec<&[u8]> = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
    let whole = heard(&[stream]);
    assert_eq!(heard(&cut), whole, "cut at {places:?}");
    assert_eq!(heard(&stream.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    if let Some(first) = whole.told.first() {
        assert!(matches!(first, Told::All(_)), "{first:?} before everything");
    }
}

/// What became known of a stream, and what is asked next.
#[derive(Debug, PartialEq)]
struct Heard {
    told: Vec<Told>,
    known: Vec<Option<String>>,
    asked: Vec<String>,
}

fn heard(pieces: &[&[u8]]) -> Heard {
    let body: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
    let asked = Arc::new(Mutex::new(Vec::<String>::new()));
    let paths = Arc::clone(&asked);
    // One stream for each of the two, and a list for who asks for that first.
    let respond = move |path: &str| {
        let mut paths = paths.lock().expect("nobody panics with it");
        let is_of_node = path.contains("fieldSelector");
        let before = paths.iter().filter(|path| path.contains("fieldSelector") == is_of_node).count();
        paths.push(path.to_owned());
        match (is_of_node, before) {
            (true, 0) => Answer::json(LIST),
            (true, 1) | (false, 0) => Answer { status: 200, pieces: body.clone(), end: End::Ordinary },
            _ => Answer { status: 200, pieces: Vec::new(), end: End::Never },
        }
    };
    let (told, known) = follow::run(respond, |_| follow::nap());
    let mut asked = asked.lock().expect("nobody panics with it").clone();
    // Which of the two is faster says nothing.
    asked.sort();
    Heard { told, known, asked }
}
