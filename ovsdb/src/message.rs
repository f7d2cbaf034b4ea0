//! JSON-RPC 1.0 messages as OVSDB uses them (RFC 7047 §4). Does not decode their results and
//! parameters.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::OvsdbError;

/// A message from the server.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to the request with this id.
    Answer {
        id: u64,
        answer: Result<Body, OvsdbError>,
    },
    /// An answer whose id is not a number. The requests with such ids (`probe`, `cancel`, `unlock`)
    /// ignore their answers.
    Unnumbered,
    /// A notification of a monitor; the monitor's id is the first parameter.
    Update {
        monitor: u64,
        params: Body,
    },
    /// The server probes whether this end is alive; `reply` is the answer to send.
    Echo {
        reply: Vec<u8>,
    },
    MonitorCanceled,
    /// This connection got a lock, or another one stole it (RFC 7047 §4.1.9, §4.1.10).
    Lock {
        name: String,
        held: bool,
    },
    /// A request or notification that this client does not know and can ignore.
    Other {
        method: String,
    },
}

/// An undecoded part of a message. Keeps the whole message, so that the part is not copied.
#[derive(Debug)]
pub(crate) struct Body {
    message: String,
    part: Range<usize>,
}

impl Body {
    pub(crate) fn as_str(&self) -> &str {
        &self.message[self.part.clone()]
    }

    /// The memory it occupies, in bytes: that of the whole message.
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
struct RequestMessage<'a, P> {
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

/// The probe of RFC 7047 §4.1.11. Its id is not a number, so it differs from the ids of all other
/// requests.
pub(crate) const PROBE: &[u8] = br#"{"id":"probe","method":"echo","params":[]}"#;

/// Ends a monitor (RFC 7047 §4.1.7). The id is not a number, as that of [`PROBE`].
pub(crate) fn monitor_cancel(monitor: u64) -> String {
    format!(r#"{{"id":"cancel","method":"monitor_cancel","params":[{monitor}]}}"#)
}

/// Releases a lock (RFC 7047 §4.1.8). The id is not a number, as that of [`PROBE`].
pub(crate) fn unlock(name: &str) -> String {
    let name = serde_json::Value::from(name);
    format!(r#"{{"id":"unlock","method":"unlock","params":[{name}]}}"#)
}

/// A request as it is sent.
pub(crate) fn request(
    id: u64,
    method: &str,
    params: impl Serialize,
) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&RequestMessage { id, method, params })
}

/// Parses a message. The error says why it is not one.
pub(crate) fn parse(message: Vec<u8>) -> Result<Message, String> {
    let message = String::from_utf8(message).map_err(|error| error.to_string())?;
    let Envelope { id, method, params, result, error } =
        serde_json::from_str(&message).map_err(|error| error.to_string())?;
    match (method, id) {
        // The only request that a server sends to a client (RFC 7047 §4.1.11).
        (Some(method), Some(id)) if method == "echo" => {
            let reply = serde_json::to_vec(&Reply { id, result: params, error: None })
                .map_err(|error| error.to_string())?;
            Ok(Message::Echo { reply })
        }
        (Some(method), Some(_)) => Ok(Message::Other { method }),
        (Some(method), None) => match method.as_str() {
            "update" | "update2" | "update3" => {
                let params = params.ok_or("an update without parameters")?;
                let FirstNumber(monitor) =
                    serde_json::from_str(params.get()).map_err(|error| error.to_string())?;
                let part = place(&message, params);
                Ok(Message::Update { monitor, params: Body { part, message } })
            }
            "monitor_canceled" => Ok(Message::MonitorCanceled),
            "locked" | "stolen" => {
                let params = params.ok_or("a lock notification without the lock's name")?;
                let (name,) =
                    serde_json::from_str(params.get()).map_err(|error| error.to_string())?;
                Ok(Message::Lock { name, held: method == "locked" })
            }
            _ => Ok(Message::Other { method }),
        },
        (None, Some(id)) => {
            let Ok(id) = id.get().parse() else { return Ok(Message::Unnumbered) };
            // `null` counts as absent: servers usually send both members, one of them null.
            let answer = match (error, result) {
                (Some(error), _) => {
                    Err(serde_json::from_str(error.get()).map_err(|error| error.to_string())?)
                }
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

/// The number that an array begins with. The other elements are skipped, but have to be valid JSON.
struct FirstNumber(u64);

impl<'de> Deserialize<'de> for FirstNumber {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FirstVisitor;

        impl<'de> serde::de::Visitor<'de> for FirstVisitor {
            type Value = FirstNumber;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array that begins with a number")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> Result<FirstNumber, A::Error> {
                let first = seq
                    .next_element()?
                    .ok_or_else(|| serde::de::Error::invalid_length(0, &self))?;
                while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                Ok(FirstNumber(first))
            }
        }

        deserializer.deserialize_seq(FirstVisitor)
    }
}

#[cfg(test)]
mod tests;
