//! Places where a test can make the plugin fail, die or hang: before and after each stage of an ADD.
//!
//! Compiled in with the feature `failpoints` only. `OVN_CNI_FAILPOINT=after:veth=kill` dies by SIGKILL once the veth is there;
//! `before:port=error` fails as if the stage had; `after:result=hang` waits for ever. With `patient` it dies nowhere, and leaves to the server what the server
//! does in the end, however busy the machine is.

use std::time::Duration;

use contract::stage::Stage;

#[cfg(feature = "failpoints")]
const VARIABLE: &str = "OVN_CNI_FAILPOINT";
/// As long as any test takes.
#[cfg(feature = "failpoints")]
const AGES: Duration = Duration::from_secs(60);

/// On which side of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// A test asked for this failure.
#[derive(Debug, thiserror::Error)]
#[error("failpoint {0:?} {1}")]
pub struct Hit(pub Side, pub Stage);

/// Does what the environment asks for at this place; nothing in an ordinary build.
#[cfg(feature = "failpoints")]
pub async fn pass(side: Side, stage: Stage) -> Result<(), Hit> {
    let name = match side {
        Side::Before => format!("before:{stage}="),
        Side::After => format!("after:{stage}="),
    };
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    match wanted.strip_prefix(&name) {
        Some("error") => Err(Hit(side, stage)),
        Some("kill") => {
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
            Ok(())
        }
        Some("hang") => std::future::pending().await,
        Some(_) | None => Ok(()),
    }
}

/// Does nothing.
#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unused_async, reason = "the same signature as with the feature")]
pub async fn pass(_side: Side, _stage: Stage) -> Result<(), Hit> {
    Ok(())
}

/// How long the server may take before the plugin does its work: `usual`, unless a test asks for more.
pub fn patience(usual: Duration) -> Duration {
    #[cfg(feature = "failpoints")]
    if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == "patient") {
        return AGES;
    }
    usual
}
