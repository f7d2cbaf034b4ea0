//! JSON-RPC 1.0 messages as OVSDB uses them (RFC 7047 §4), without the meaning of their parts.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::OvsdbError;

/// A message from the server.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to the request of this id.
    Answer {
        id: u64,
        answer: Result<Body, OvsdbError>,
    },
    /// An answer to a request that carried no number, and whose answer says nothing.
    Unnumbered,
    /// A report of a monitor; its id is the first parameter.
    Update {
        monitor: u64,
        params: Body,
    },
    /// The server wants to know whether this end is alive; this is the reply.
    Echo {
        reply: Vec<u8>,
    },
    MonitorCanceled,
    /// A lock has come to this connection, or was stolen from it (RFC 7047 §4.1.9, §4.1.10).
    Lock {
        name: String,
        held: bool,
    },
    /// Something that this client has not asked for and can ignore.
    Other {
        method: String,
    },
}

/// A part of a message that is yet to be decoded, where it lies.
#[derive(Debug)]
pub(crate) struct Body {
    message: String,
    part: Range<usize>,
}

impl Body {
    pub(crate) fn as_str(&self) -> &str {
        &self.message[self.part.clone()]
    }

    /// The memory it occupies.
    pub(crate) fn size(&self) -> usize {
        self.message.len()
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Request<'a, P> {
    id: u64,
    method: &'a str,
    params: P,
}

#[derive(Serialize)]
struct Reply<'a> {
    id: &'a RawValue,
    result: Option<&'a RawValue>,
    error: Option<()>,
}

/// The probe of RFC 7047 §4.1.11, under an id that no request of this client has.
pub(crate) const PROBE: &[u8] = br#"{"id":"probe","method":"echo","params":[]}"#;

/// The end of a monitor (RFC 7047 §4.1.7), under such an id as well.
pub(crate) fn monitor_cancel(monitor: u64) -> String {
    format!(r#"{{"id":"cancel","method":"monitor_cancel","params":[{monitor}]}}"#)
}

/// A lock is given back (RFC 7047 §4.1.8), under such an id as well.
pub(crate) fn unlock(name: &str) -> String {
    let name = serde_json::Value::from(name);
    format!(r#"{{"id":"unlock","method":"unlock","params":[{name}]}}"#)
}

/// A request as it is sent.
pub(crate) fn request(id: u64, method: &str, params: impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Request { id, method, params })
}

/// Reads a message; the error says in which way it is none.
pub(crate) fn parse(message: Vec<u8>) -> Result<Message, String> {
    let message = String::from_utf8(message).map_err(|error| error.to_string())?;
    let Envelope { id, method, params, result, error } = serde_json::from_str(&message).map_err(|error| error.to_string())?;
    match (method, id) {
        // The only request that a server makes of a client (RFC 7047 §4.1.11).
        (Some(method), Some(id)) if method == "echo" => {
            let reply = serde_json::to_vec(&Reply { id, result: params, error: None }).map_err(|error| error.to_string())?;
            Ok(Message::Echo { reply })
        }
        (Some(method), Some(_)) => Ok(Message::Other { method }),
        (Some(method), None) => match method.as_str() {
            "update" | "update2" | "update3" => {
                let params = params.ok_or("an update without parameters")?;
                let FirstNumber(monitor) = serde_json::from_str(params.get()).map_err(|error| error.to_string())?;
                let part = place(&message, params);
                Ok(Message::Update { monitor, params: Body { part, message } })
            }
            "monitor_canceled" => Ok(Message::MonitorCanceled),
            "locked" | "stolen" => {
                let params = params.ok_or("news of a lock without its name")?;
                let (name,) = serde_json::from_str(params.get()).map_err(|error| error.to_string())?;
                Ok(Message::Lock { name, held: method == "locked" })
            }
            _ => Ok(Message::Other { method }),
        },
        (None, Some(id)) => {
            let Ok(id) = id.get().parse() else { return Ok(Message::Unnumbered) };
            let answer = match (error, result) {
                (Some(error), _) => Err(serde_json::from_str(error.get()).map_err(|error| error.to_string())?),
                (None, Some(result)) => {
                    let part = place(&message, result);
                    Ok(Body { part, message })
                }
                (None, None) => return Err("an answer with neither result nor error".to_owned()),
            };
            Ok(Message::Answer { id, answer })
        }
        (None, None) => Err("neither a request nor an answer".to_owned()),
    }
}

/// Where a borrowed part lies in its message.
fn place(message: &str, part: &RawValue) -> Range<usize> {
    let start = part.get().as_ptr().addr() - message.as_ptr().addr();
    start..start + part.get().len()
}

/// The number that an array begins with, whatever follows.
struct FirstNumber(u64);

impl<'de> Deserialize<'de> for FirstNumber {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FirstVisitor;

        impl<'de> serde::de::Visitor<'de> for FirstVisitor {
            type Value = FirstNumber;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array that begins with a number")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<FirstNumber, A::Error> {
                let first = seq.next_element()?.ok_or_else(|| serde::de::Error::invalid_length(0, &self))?;
                while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                Ok(FirstNumber(first))
            }
        }

        deserializer.deserialize_seq(FirstVisitor)
    }
}

#[cfg(test)]
mod tests;
