//! The errors of this crate, except [`TransactError`](crate::TransactError), which is with
//! transactions.
//!
//! They refer to each other: a broken protocol closes a connection, and a closed connection ends a
//! monitor. Nothing here knows what the errors are about.
//!
//! | part | what failed |
//! |---|---|
//! | `server` | a request, by the server's own account |
//! | `closed` | a connection, or the attempt to open one |
//! | `monitor` | a monitor |
//! | `ssl` | TLS: a file, or the peer |

mod closed;
mod monitor;
mod server;
mod ssl;

pub use closed::{Closed, ConnectError, ConnectFault, Unfit};
pub use monitor::MonitorError;
pub(crate) use server::explanation;
pub use server::{ErrorKind, OvsdbError};
pub use ssl::{SslError, SslFile};
