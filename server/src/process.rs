//! What every life of this program has, whatever it is asked to be. Knows no role.
//!
//! | module | what it does |
//! |---|---|
//! | `host_lock` | a lock that shows whether the former process of a name has ended |
//! | `pidfile` | the file that says which process is the server |
//! | `signals` | what tells the process to stop, or to open its log anew |
//! | `announce` | what is missing and what is done, to the log and to systemd |

pub(crate) mod announce;
pub(crate) mod host_lock;
pub(crate) mod pidfile;
pub(crate) mod signals;

pub use pidfile::PidfileError;
