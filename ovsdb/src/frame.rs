//! Where one message ends and the next begins in a stream of bytes.
//!
//! RFC 7047 §4 puts JSON objects one after the other with nothing in between, so their braces have to be counted. Does no I/O:
//! bytes go in as they come, whole messages come out. Each byte is looked at once, however the stream is cut.

/// What a peer may send before it is taken for broken or hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// In bytes, for one message.
    pub size: usize,
    /// How deep objects and arrays may nest. OVSDB needs 8; the decoder's own limit is 128.
    pub depth: usize,
}

/// Up to here the buffer may grow as vectors do.
const SMALL: usize = 1 << 20;

/// Why a stream of bytes is no stream of messages. There is no way to find the next message: the connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("byte {0:#04x} where a message should begin")]
    Start(u8),
    #[error("a message of more than {0} bytes")]
    Size(usize),
    #[error("objects and arrays nested deeper than {0}")]
    Depth(usize),
}

/// Cuts a stream into messages.
#[derive(Debug)]
pub struct Framer {
    limits: FrameLimits,
    buffer: Vec<u8>,
    /// Where the message that is being read begins in `buffer`.
    start: usize,
    /// How far `buffer` has been looked at.
    scanned: usize,
    /// Objects and arrays that are open at `scanned`.
    depth: usize,
    place: Place,
}

/// What the byte at `scanned` is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Structure,
    String,
    /// Behind a backslash in a string.
    Escape,
}

impl Framer {
    /// A framer at the beginning of a stream.
    pub fn new(limits: FrameLimits) -> Self {
        Self { limits, buffer: Vec::new(), start: 0, scanned: 0, depth: 0, place: Place::Structure }
    }

    /// Takes the next bytes of the stream. Take all [messages](Self::next_message) before the next ones: an oversized message is
    /// noticed there.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        let room = self.buffer.capacity() - self.buffer.len();
        if bytes.len() > room && self.buffer.len() > SMALL {
            // A vector would double itself: a message of 500 MB would take 1 GB, and both while it is copied.
            self.buffer.reserve_exact(bytes.len().max(self.buffer.len() / 8));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, if it has come whole. Braces and quotes in it are balanced; nothing else is checked.
    ///
    /// # Errors
    /// The bytes are no messages, or one is larger or deeper than the limits.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        if self.depth == 0 && !self.find_start()? {
            return Ok(None);
        }
        while let Some(&byte) = self.buffer.get(self.scanned) {
            self.scanned += 1;
            match (self.place, byte) {
                (Place::Structure, b'"') => self.place = Place::String,
                (Place::Structure, b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth > self.limits.depth {
                        return Err(FrameError::Depth(self.limits.depth));
                    }
                }
                (Place::Structure, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.check_size()?;
                        return Ok(Some(self.cut()));
                    }
                }
                (Place::String, b'"') => self.place = Place::Structure,
                (Place::String, b'\\') => self.place = Place::Escape,
                (Place::Escape, _) => self.place = Place::String,
                (Place::Structure | Place::String, _) => {}
            }
        }
        self.check_size()?;
        Ok(None)
    }

    /// Skips white space; whether a message begins behind it.
    fn find_start(&mut self) -> Result<bool, FrameError> {
        let rest = &self.buffer[self.scanned..];
        let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.scanned += blank;
        self.start = self.scanned;
        match rest.get(blank) {
            Some(b'{') => Ok(true),
            Some(byte) => Err(FrameError::Start(*byte)),
            None => Ok(false),
        }
    }

    fn check_size(&self) -> Result<(), FrameError> {
        if self.scanned - self.start > self.limits.size { Err(FrameError::Size(self.limits.size)) } else { Ok(()) }
    }

    /// Takes out the message that ends at `scanned`, copying whichever is less: the message or what follows it.
    fn cut(&mut self) -> Vec<u8> {
        let message = if self.start == 0 && self.scanned >= self.buffer.len() - self.scanned {
            let rest = self.buffer.split_off(self.scanned);
            self.scanned = 0;
            std::mem::replace(&mut self.buffer, rest)
        } else {
            self.buffer[self.start..self.scanned].to_vec()
        };
        self.start = self.scanned;
        message
    }
}

#[cfg(test)]
mod tests;
