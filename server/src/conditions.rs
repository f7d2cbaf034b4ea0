//! What the server needs before a pod can have its network, and what of it is missing now. Knows nothing of who asks: `/readyz`, STATUS
//! and the log show the same list.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tokio::sync::watch;

/// Something that has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Open vSwitch's database answers.
    OpenVSwitch,
    /// The plugin is where runtimes look for it.
    Plugin,
    /// The socket is served.
    Socket,
    /// All pods of this node are known.
    Pods,
    /// The node and its pods reach each other.
    ManagementPort,
    /// Runtimes are told to use the plugin.
    CniConf,
}

/// The parts that are waited for, each with the reason. Clones share one content.
#[derive(Debug, Clone)]
pub struct Conditions {
    missing: Arc<watch::Sender<BTreeMap<Part, String>>>,
}

impl Part {
    pub const ALL: [Self; 6] = [Self::OpenVSwitch, Self::Plugin, Self::Socket, Self::Pods, Self::ManagementPort, Self::CniConf];

    /// As `/readyz` and the log name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenVSwitch => "open-vswitch",
            Self::Plugin => "plugin",
            Self::Socket => "socket",
            Self::Pods => "pods",
            Self::ManagementPort => "management-port",
            Self::CniConf => "cni-configuration",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Default for Conditions {
    /// Everything is missing: nothing was started.
    fn default() -> Self {
        let missing = Part::ALL.map(|part| (part, "not started".to_owned()));
        Self { missing: Arc::new(watch::Sender::new(missing.into())) }
    }
}

impl Conditions {
    /// `part` is there.
    pub fn met(&self, part: Part) {
        self.missing.send_if_modified(|missing| missing.remove(&part).is_some());
    }

    /// `part` is missing, and why.
    pub fn missing(&self, part: Part, why: impl Into<String>) {
        let why = why.into();
        self.missing.send_if_modified(|missing| missing.insert(part, why.clone()).as_ref() != Some(&why));
    }

    /// What is missing now, with the reason.
    pub fn all_missing(&self) -> BTreeMap<Part, String> {
        self.missing.borrow().clone()
    }

    /// Every change from now on.
    pub fn watch(&self) -> watch::Receiver<BTreeMap<Part, String>> {
        self.missing.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_missing_until_it_is_met_and_only_changes_are_told() {
        let conditions = Conditions::default();
        assert_eq!(conditions.all_missing().len(), Part::ALL.len());
        let mut watch = conditions.watch();
        Part::ALL.into_iter().for_each(|part| conditions.met(part));
        assert!(watch.has_changed().unwrap() && watch.borrow_and_update().is_empty());

        conditions.missing(Part::Pods, "no answer");
        assert_eq!(conditions.all_missing(), [(Part::Pods, "no answer".to_owned())].into());
        assert!(watch.has_changed().unwrap());
        watch.mark_unchanged();
        conditions.missing(Part::Pods, "no answer");
        assert!(!watch.has_changed().unwrap());
    }
}
