use proptest::prelude::*;

use super::*;
use crate::Options;

const LIMITS: FrameLimits = FrameLimits { size: 1000, depth: 20 };

/// All messages of a stream that arrives in these pieces.
fn messages<'a>(
    limits: FrameLimits,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Vec<u8>>, FrameError> {
    let mut framer = Framer::new(limits);
    let mut found = Vec::new();
    for piece in pieces {
        framer.push(piece);
        while let Some(message) = framer.next_message()? {
            found.push(message);
        }
    }
    Ok(found)
}

fn whole(limits: FrameLimits, stream: &str) -> Result<Vec<String>, FrameError> {
    Ok(messages(limits, [stream.as_bytes()])?
        .into_iter()
        .map(|message| String::from_utf8(message).unwrap())
        .collect())
}

#[test]
fn messages_are_cut_at_their_own_braces() {
    for message in
        [r#"{"a":"}"}"#, r#"{"a":"\"}{\\"}"#, r#"{"a":[{},[[]]]}"#, "{}", r#"{"\\":"\\\\"}"#]
    {
        let stream = format!("{message}\n {message}{message}");
        assert_eq!(whole(LIMITS, &stream), Ok(vec![message.to_owned(); 3]), "{stream}");
    }
}

#[test]
fn half_a_message_is_no_message() {
    assert_eq!(whole(LIMITS, r#"{"a":{}"#), Ok(vec![]));
    assert_eq!(whole(LIMITS, "{\"a\":\"}\\\""), Ok(vec![]));
}

#[test]
fn what_is_no_object_is_refused() {
    assert_eq!(whole(LIMITS, "[]"), Err(FrameError::Start(b'[')));
    assert_eq!(whole(LIMITS, "{}}"), Err(FrameError::Start(b'}')));
    assert_eq!(whole(LIMITS, "\u{0}"), Err(FrameError::Start(0)));
}

#[test]
fn a_message_of_the_largest_size_passes_and_one_byte_more_does_not() {
    let limits = FrameLimits { size: 10, ..LIMITS };
    let [fits, large] = [r#"{"a":"bc"}"#, r#"{"a":"bcd"}"#];
    assert_eq!((fits.len(), large.len()), (10, 11));
    assert_eq!(
        whole(limits, &format!("  {fits} {fits}")),
        Ok(vec![fits.to_owned(), fits.to_owned()])
    );
    assert_eq!(whole(limits, large), Err(FrameError::Size(10)));
    // The limit applies before the message ends.
    assert_eq!(
        whole(limits, &large[..large.len() - 1].replace('b', "bb")),
        Err(FrameError::Size(10))
    );
}

#[test]
fn nesting_beyond_the_limit_is_refused() {
    let nested =
        |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
    assert_eq!(whole(LIMITS, &nested(20)).unwrap().len(), 1);
    assert_eq!(whole(LIMITS, &nested(21)), Err(FrameError::Depth(20)));
}

/// JSON objects with every character that could be mistaken for an end.
fn object() -> impl Strategy<Value = String> {
    let text = r#"["\\\\{}\[\], a]{0,8}"#.prop_map(|text| serde_json::to_string(&text).unwrap());
    let value = text.clone().prop_recursive(4, 20, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(|list| format!("[{}]", list.join(",")))
    });
    prop::collection::vec((text, value), 0..4).prop_map(|members| {
        format!(
            "{{{}}}",
            members
                .into_iter()
                .map(|(key, value)| format!("{key}:{value}"))
                .collect::<Vec<_>>()
                .join(",")
        )
    })
}

proptest! {
    #[test]
    fn any_cutting_of_the_stream_gives_the_messages_that_were_sent(
        sent in prop::collection::vec((object(), "[ \n]{0,2}"), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream: Vec<u8> = sent.iter().flat_map(|(message, blank)| format!("{blank}{message}").into_bytes()).collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).chain([0, stream.len()]).collect();
        places.sort_unstable();
        let pieces = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
        let found = messages(LIMITS, pieces).unwrap();
        prop_assert_eq!(found, sent.into_iter().map(|(message, _)| message.into_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_the_framer_panic(pieces in prop::collection::vec("[{}\\[\\]\"\\\\ x]{0,9}", 0..9)) {
        let _ = messages(FrameLimits { size: 20, depth: 3 }, pieces.iter().map(|piece| piece.as_bytes()));
    }
}

#[test]
fn a_large_message_takes_little_more_room_than_it_has_bytes() {
    let mut framer = Framer::new(FrameLimits { size: 1 << 30, depth: 20 });
    let text = format!(r#"{{"a":"{}"}}"#, "x".repeat(40 << 20));
    for piece in text.as_bytes().chunks(64 << 10) {
        framer.push(piece);
        let length = framer.buffer.len();
        assert!(
            length < 2 << 20 || framer.buffer.capacity() <= length + length / 7,
            "{length}: {}",
            framer.buffer.capacity()
        );
        if let Some(message) = framer.next_message().unwrap() {
            assert_eq!(message.len(), text.len());
            return;
        }
    }
    panic!("the message did not end");
}

/// 130,000 ports, or 60,000 ACLs, are more than the default takes: no connection was ever good
/// again.
#[test]
fn the_copy_of_a_large_database_is_one_message_that_passes() {
    let (copy, piece) = (80 << 20, vec![b'x'; 1 << 20]);
    let arrives = |limits: FrameLimits| {
        let mut framer = Framer::new(limits);
        framer.push(br#"{"a":""#);
        for _ in 0..copy / piece.len() {
            framer.push(&piece);
            assert_eq!(framer.next_message()?, None, "the end is to come");
        }
        framer.push(br#""}"#);
        framer.next_message().map(|message| message.map_or(0, |message| message.len()))
    };
    assert!(arrives(Options::large().frame).is_ok_and(|length| length > copy));
    assert!(Options::large().backlog > copy);
    assert!(arrives(Options::default().frame).is_err(), "this copy is too small for the test");
}
