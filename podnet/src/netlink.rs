//! The four ways in which this project speaks with the kernel over netlink(7).
//!
//! | module | how | needs |
//! |---|---|---|
//! | [`mod@request`] | [`Netlink`]: asks, and finds the answer when the message was sent | nothing: blocks for as long as the kernel works |
//! | [`mod@dump`] | a long list, one entry at a time | a tokio runtime |
//! | [`listen`] | [`listen::Listener`]: what the kernel tells of itself | a tokio runtime |
//! | [`batch`] | messages in one go: all of them have an effect, or none | a tokio runtime |
//!
//! Must not know what the messages are about.

pub mod batch;
pub mod dump;
pub mod listen;
pub mod request;

pub use request::{Netlink, NetlinkError};
