//! Splits a stream of bytes into messages.
//!
//! RFC 7047 §4 sends JSON objects one after the other without a delimiter, so the framer counts
//! braces. It does no I/O: bytes go in as they arrive, whole messages come out. Each byte is
//! scanned once, however the stream is cut.

/// Limits on one message. A peer that exceeds them is taken for broken or hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// The maximum size of a message, in bytes.
    pub size: usize,
    /// How deep objects and arrays may nest. OVSDB needs 8; `serde_json`'s own limit is 128.
    pub depth: usize,
}

/// Buffers of up to 1 MiB double as vectors do; larger ones grow by an eighth. A much smaller limit
/// would copy messages of usual size more often; a much larger one would leave up to half of a
/// large buffer unused.
const SMALL: usize = 1 << 20;

/// Why a stream of bytes cannot be split. The next message cannot be found, so the connection has
/// to be closed.
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
    /// Where the current message begins in `buffer`.
    start: usize,
    /// How far `buffer` has been scanned.
    scanned: usize,
    /// The number of objects and arrays that are open at `scanned`.
    depth: usize,
    place: Place,
}

/// What the byte at `scanned` is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Structure,
    String,
    /// After a backslash in a string.
    Escape,
}

impl Framer {
    /// A framer at the beginning of a stream.
    pub fn new(limits: FrameLimits) -> Self {
        Self { limits, buffer: Vec::new(), start: 0, scanned: 0, depth: 0, place: Place::Structure }
    }

    /// Takes the next bytes of the stream. Call [`next_message`](Self::next_message) until it
    /// returns `None` before the next `push`: only it notices an oversized message.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        let room = self.buffer.capacity() - self.buffer.len();
        if bytes.len() > room && self.buffer.len() > SMALL {
            // A vector doubles its capacity: a message of 500 MB would take 1 GB, and both buffers
            // exist while it is copied.
            self.buffer.reserve_exact(bytes.len().max(self.buffer.len() / 8));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, or `None` until all of it has arrived. Only its braces and quotes are
    /// checked.
    ///
    /// # Errors
    /// A message does not begin with `{`, or is larger or deeper than the limits.
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
        // Also before the end of a message: otherwise an endless message would fill the memory.
        self.check_size()?;
        Ok(None)
    }

    /// Skips white space. Returns whether a message begins after it.
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
        if self.scanned - self.start > self.limits.size {
            Err(FrameError::Size(self.limits.size))
        } else {
            Ok(())
        }
    }

    /// Takes out the message that ends at `scanned`. Copies the smaller part: the message or the
    /// bytes after it.
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
