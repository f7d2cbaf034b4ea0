//! Whole messages in the blocks of a connection, for an observer of a proxy. Must not know what
//! they mean.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use serde_json::{Deserializer, Value};

use super::lock;

/// Which end sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    Client,
    Server,
}

/// Sees what passes a proxy.
pub trait Observer: fmt::Debug + Send {
    /// Sees a message as a whole, before its last byte is passed on, or meets a fault. Connections
    /// have numbers.
    fn see(&mut self, connection: usize, sender: Sender, message: &Value);
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Direction {
    observer: Option<Arc<Mutex<dyn Observer>>>,
    connection: usize,
    sender: Sender,
    /// The message of which not all has come.
    begun: Vec<u8>,
}

impl Direction {
    pub(super) fn new(
        observer: Option<Arc<Mutex<dyn Observer>>>,
        connection: usize,
        sender: Sender,
    ) -> Self {
        Self { observer, connection, sender, begun: Vec::new() }
    }

    /// Shows the messages that end in this block.
    pub(super) fn pass(&mut self, block: &[u8]) {
        let Some(observer) = &self.observer else { return };
        self.begun.extend(block);
        let mut messages = Deserializer::from_slice(&self.begun).into_iter::<Value>();
        for message in messages.by_ref().map_while(Result::ok) {
            lock(observer).see(self.connection, self.sender, &message);
        }
        let shown = messages.byte_offset();
        self.begun.drain(..shown);
    }
}
