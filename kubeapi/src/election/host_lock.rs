//! Proof that the former process of the same identity has ended: a lock on this host, which the
//! kernel releases when its holder ends.
//!
//! A leader's Lease names the lock that the leader holds. A candidate that holds the same lock now
//! knows that the leader has ended, and does not wait until its Lease expires. A process that is
//! stopped (SIGSTOP) keeps its lock. A process on another host, or with another directory, has
//! another lock. This module does no file I/O: the lock itself is taken elsewhere.

use std::{fmt, str::FromStr};

use tokio::sync::watch;

/// A lock that this process holds or waits for.
#[derive(Debug, Clone)]
pub struct HostLock {
    /// Which lock it is.
    pub mark: Mark,
    /// Whether this process holds it, and every change of that.
    pub held: watch::Receiver<bool>,
}

/// The identity of a lock, as the Lease's annotation spells it: `boot=… file=… machine=…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// `/proc/sys/kernel/random/boot_id`: identifies the running kernel, in which the lock exists.
    pub boot: String,
    /// Device and inode: the same for each process that locks this file, by whatever path.
    pub file: String,
    /// `/etc/machine-id`, if there is one. It survives a restart of the machine, which ends all
    /// processes.
    pub machine: Option<String>,
}

/// A text that is not a [`Mark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no lock of a host")]
pub struct NoMark;

impl HostLock {
    /// Whether this process holds the lock.
    pub fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Whether a process that held the lock `holder` has ended.
    pub(super) fn shows_ended(&self, holder: Option<&Mark>) -> bool {
        let Mark { boot, file, machine } = &self.mark;
        self.is_held()
            && holder.is_some_and(|holder| {
                // Same kernel: only the same file shows it, as the lock passed from the leader to
                // this process. Another boot of the same machine: all processes of the former boot
                // have ended.
                if holder.boot == *boot {
                    holder.file == *file
                } else {
                    machine.is_some() && holder.machine == *machine
                }
            })
    }

    /// Waits until this process holds the lock; for ever if it never does.
    pub(super) async fn gained(&self) {
        if self.held.clone().wait_for(|held| *held).await.is_err() {
            std::future::pending().await
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { boot, file, machine } = self;
        write!(f, "boot={boot} file={file}")?;
        machine.as_ref().map_or(Ok(()), |machine| write!(f, " machine={machine}"))
    }
}

impl FromStr for Mark {
    type Err = NoMark;

    fn from_str(text: &str) -> Result<Self, NoMark> {
        let part = |name: &str| {
            text.split(' ').filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name)
        };
        let value = |name: &str| {
            part(name).map(|(_, value)| value.to_owned()).filter(|value| !value.is_empty())
        };
        Ok(Self {
            boot: value("boot").ok_or(NoMark)?,
            file: value("file").ok_or(NoMark)?,
            machine: value("machine"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(boot: &str, file: &str, machine: Option<&str>) -> Mark {
        Mark { boot: boot.to_owned(), file: file.to_owned(), machine: machine.map(str::to_owned) }
    }

    #[test]
    fn a_holder_has_ended_if_its_lock_is_held_by_this_process_or_its_machine_has_started_anew() {
        let held = |machine, held| HostLock {
            mark: mark("b1", "25:7", machine),
            held: watch::channel(held).1,
        };
        let of_holder = |boot, file, machine| mark(boot, file, machine);
        let here = held(Some("m1"), true);
        assert!(here.shows_ended(Some(&of_holder("b1", "25:7", Some("m1")))));
        assert!(
            here.shows_ended(Some(&of_holder("b0", "25:9", Some("m1")))),
            "the machine has started since"
        );
        assert!(
            !here.shows_ended(Some(&of_holder("b1", "25:8", Some("m1")))),
            "another file: another lock"
        );
        assert!(!here.shows_ended(Some(&of_holder("b2", "25:7", Some("m2")))), "another machine");
        assert!(!here.shows_ended(None), "it says nothing of a lock");
        assert!(
            !held(Some("m1"), false).shows_ended(Some(&of_holder("b1", "25:7", Some("m1")))),
            "it has the lock still"
        );
        assert!(
            !held(None, true).shows_ended(Some(&of_holder("b0", "25:7", None))),
            "two machines without a name"
        );
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        for mark in [mark("b1", "25:7", Some("m1")), mark("b1", "25:7", None)] {
            assert_eq!(mark.to_string().parse(), Ok(mark));
        }
        for wrong in ["", "boot=b1", "boot= file=1", "file=1", "nothing at all"] {
            assert_eq!(wrong.parse::<Mark>(), Err(NoMark), "{wrong:?}");
        }
    }
}
