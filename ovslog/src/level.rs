//! Log levels, in the spellings of Open vSwitch and of Kubernetes.

use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Libraries whose events below ERR are not logged: they concern only developers of the library.
/// Each name is a prefix of targets: `kube_` is not the project's own `kubeapi`.
const TALKATIVE: [&str; 4] = ["hyper", "kube_", "rustls", "tower"];

/// The least severe level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

/// A text that is not a level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("level {0:?} is none of emer, err, warn, info, dbg, or a klog verbosity")]
pub struct BadLevel(String);

impl Level {
    /// The level as a filter for a subscriber.
    pub fn filter(self) -> Targets {
        let level = match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        };
        Targets::new()
            .with_default(level)
            .with_targets(TALKATIVE.map(|library| (library, LevelFilter::ERROR)))
    }
}

impl FromStr for Level {
    type Err = BadLevel;

    /// Takes Open vSwitch's names, their longer forms, or a klog verbosity (0 to 255). As in Go
    /// programs, every verbosity logs `info` and above, and debugging starts at 5.
    fn from_str(text: &str) -> Result<Self, BadLevel> {
        match text.trim().to_ascii_lowercase().as_str() {
            "emer" | "err" | "error" => Ok(Self::Error),
            "warn" | "warning" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "dbg" | "debug" => Ok(Self::Debug),
            number => match number.parse::<u8>() {
                Ok(0..=4) => Ok(Self::Info),
                Ok(_) => Ok(Self::Debug),
                // Shortened: the text may be anything from a configuration file.
                Err(_) => Err(BadLevel(text.chars().take(64).collect())),
            },
        }
    }
}
