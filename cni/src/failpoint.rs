//! Places where a test can make the plugin fail, die or hang: before and after each stage of an
//! ADD, and before and after the work of each other verb.
//!
//! Compiled in with the feature `failpoints` only. `OVN_CNI_FAILPOINT=after:veth=kill` kills the
//! plugin with SIGKILL once the veth exists; `before:port=error` fails as if the stage had failed;
//! `after:result=hang` waits forever, and so does `before:DEL=hang`. Three values trigger nothing:
//! with `burst` the plugin has the server write its port, as if many calls were under way; with
//! `patient` it also leaves to the server what the server does in the end, and takes its time for
//! the rest, however busy the machine is; with `hurried` it has no time for what it may leave to
//! others.

use std::{fmt::Display, time::Duration};

use contract::wire::PortWriter;

#[cfg(feature = "failpoints")]
const VARIABLE: &str = "OVN_CNI_FAILPOINT";
/// As long as any test takes, so that the plugin never acts in the server's place.
#[cfg(feature = "failpoints")]
const AGES: Duration = Duration::from_secs(60);

/// The side of a stage, or of a verb's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// The failure that a test asked for.
#[derive(Debug, thiserror::Error)]
#[error("failpoint {0:?} {1}")]
pub struct Hit(pub Side, pub String);

/// Does what the environment asks for on this side of a stage or verb.
///
/// # Errors
/// [`Hit`] if the environment asks for an error here.
#[cfg(feature = "failpoints")]
pub async fn pass(side: Side, place: impl Display) -> Result<(), Hit> {
    let name = match side {
        Side::Before => format!("before:{place}="),
        Side::After => format!("after:{place}="),
    };
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    match wanted.strip_prefix(&name) {
        Some("error") => Err(Hit(side, place.to_string())),
        Some("kill") => {
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
            Ok(())
        }
        Some("hang") => std::future::pending().await,
        Some(_) | None => Ok(()),
    }
}

/// Does nothing in an ordinary build.
///
/// # Errors
/// None.
#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unused_async, reason = "the same signature as with the feature")]
pub async fn pass(_side: Side, _place: impl Display) -> Result<(), Hit> {
    Ok(())
}

/// The program that writes the port: the one that the server names, unless a test asks for the
/// server.
pub fn port_writer(named: PortWriter) -> PortWriter {
    #[cfg(feature = "failpoints")]
    if matches!(std::env::var(VARIABLE).as_deref(), Ok("burst" | "patient")) {
        return PortWriter::Server;
    }
    named
}

/// How long the plugin waits before it acts in the server's place, or leaves something to the
/// server: `usual`, unless a test asks for more or for nothing.
pub fn patience(usual: Duration) -> Duration {
    #[cfg(feature = "failpoints")]
    match std::env::var(VARIABLE).as_deref() {
        Ok("patient") => return AGES,
        Ok("hurried") => return Duration::ZERO,
        _ => {}
    }
    usual
}
