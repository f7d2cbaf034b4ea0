//! How much is logged, in the spellings that administrators of Open vSwitch and of Kubernetes use.

use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Libraries that tell at every level what only their authors want to know (and those whose names begin so).
const TALKATIVE: [&str; 4] = ["hyper", "kube", "rustls", "tower"];

/// The least important events that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

/// A text that names no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("level {0:?} is none of emer, err, warn, info, dbg, and no number of klog")]
pub struct BadLevel(String);

impl Level {
    /// The same, for a subscriber.
    pub fn filter(self) -> Targets {
        let level = match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        };
        Targets::new().with_default(level).with_targets(TALKATIVE.map(|library| (library, LevelFilter::ERROR)))
    }
}

impl FromStr for Level {
    type Err = BadLevel;

    /// Open vSwitch's names, their longer forms, or klog's verbosity: as in the Go programs, `info` and what is worse are logged
    /// whatever the number, and debugging starts at 5.
    fn from_str(text: &str) -> Result<Self, BadLevel> {
        match text.trim().to_ascii_lowercase().as_str() {
            "emer" | "err" | "error" => Ok(Self::Error),
            "warn" | "warning" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "dbg" | "debug" => Ok(Self::Debug),
            number => match number.parse::<u8>() {
                Ok(0..=4) => Ok(Self::Info),
                Ok(_) => Ok(Self::Debug),
                Err(_) => Err(BadLevel(text.chars().take(64).collect())),
            },
        }
    }
}
