//! Places where a test can make the plugin fail, die or hang: before and after each stage of an ADD.
//!
//! Compiled in with the feature `failpoints` only. `OVN_CNI_FAILPOINT=after:veth=kill` kills the plugin with
//! SIGKILL once the veth exists; `before:port=error` fails as if the stage had failed; `after:result=hang`
//! waits forever. `patient` triggers nothing: the plugin leaves to the server what the server does in the
//! end, however busy the machine is.

use std::time::Duration;

use contract::stage::Stage;

#[cfg(feature = "failpoints")]
const VARIABLE: &str = "OVN_CNI_FAILPOINT";
/// As long as any test takes, so that the plugin never acts in the server's place.
#[cfg(feature = "failpoints")]
const AGES: Duration = Duration::from_secs(60);

/// The side of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// The failure that a test asked for.
#[derive(Debug, thiserror::Error)]
#[error("failpoint {0:?} {1}")]
pub struct Hit(pub Side, pub Stage);

/// Does what the environment asks for at this place.
///
/// # Errors
/// [`Hit`] if the environment asks for an error here.
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

/// Does nothing in an ordinary build.
///
/// # Errors
/// None.
#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unused_async, reason = "the same signature as with the feature")]
pub async fn pass(_side: Side, _stage: Stage) -> Result<(), Hit> {
    Ok(())
}

/// How long the server may take before the plugin acts itself: `usual`, unless a test asks for more.
pub fn patience(usual: Duration) -> Duration {
    #[cfg(feature = "failpoints")]
    if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == "patient") {
        return AGES;
    }
    usual
}
