//! Which peers may talk to the server: root, and the user that runs it. The mode of the directory
//! keeps others away already; this check holds even where the mode does not.

use nix::unistd::geteuid;
use ovslog::LogRateLimit;
use tokio::net::UnixStream;

/// The rule, and the rate limiter of its log line.
#[derive(Debug)]
pub(super) struct Peers {
    own: u32,
    refused: LogRateLimit,
}

impl Peers {
    pub(super) fn of_this_process() -> Self {
        Self { own: geteuid().as_raw(), refused: LogRateLimit::default() }
    }

    /// Whether the process at the other end may send requests. Logs a refusal, at most once a
    /// minute.
    pub(super) fn may_connect(&mut self, stream: &UnixStream) -> bool {
        // SO_PEERCRED (unix(7)): the kernel recorded the user at connect(2), so the peer cannot
        // forge it.
        let peer = stream.peer_cred();
        let may = peer.as_ref().is_ok_and(|peer| self.is_trusted(peer.uid()));
        if !may {
            let (uid, pid) = peer.map_or((None, None), |peer| (Some(peer.uid()), peer.pid()));
            self.refused.now(|times| {
                tracing::warn!(
                    uid,
                    pid,
                    times,
                    "refused a caller that is neither root nor this server's user"
                )
            });
        }
        may
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_servers_own_user_are_trusted() {
        let peers = Peers { own: 1000, refused: LogRateLimit::default() };
        assert_eq!(
            [0, 1000, 1001, u32::MAX].map(|uid| peers.is_trusted(uid)),
            [true, true, false, false]
        );
    }

    #[tokio::test]
    async fn a_caller_of_another_user_is_refused() {
        let (here, _there) = UnixStream::pair().unwrap();
        let uid = geteuid().as_raw();
        assert!(Peers { own: uid, refused: LogRateLimit::default() }.may_connect(&here));
        assert_eq!(
            Peers { own: uid + 1, refused: LogRateLimit::default() }.may_connect(&here),
            uid == 0
        );
    }
}
