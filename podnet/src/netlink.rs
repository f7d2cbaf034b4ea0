//! The four ways in which this project uses netlink(7).
//!
//! | module | how | needs |
//! |---|---|---|
//! | [`mod@request`] | [`Netlink`]: a request, and its answer at once | blocks; no runtime |
//! | [`mod@dump`] | a long list, one entry at a time | a tokio runtime |
//! | [`listen`] | [`listen::Listener`]: events of the kernel | a tokio runtime |
//! | [`batch`] | messages together: all of them take effect, or none | a tokio runtime |
//!
//! Must not know what the messages are about.

pub mod batch;
pub mod dump;
pub mod listen;
pub mod request;

pub use request::{Netlink, NetlinkError};
