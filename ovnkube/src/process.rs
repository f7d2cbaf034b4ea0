//! What every process of this program has, in any role. Knows no role.
//!
//! | module | what it does |
//! |---|---|
//! | `host_lock` | a lock that shows whether the former process of a name has ended |
//! | `pidfile` | the file with the server's process id |
//! | `signals` | signals: stop, or reopen the log |
//! | `announce` | changes of conditions, to the log and to systemd |

pub(crate) mod announce;
pub(crate) mod host_lock;
pub(crate) mod pidfile;
pub(crate) mod signals;

pub use pidfile::PidfileError;
