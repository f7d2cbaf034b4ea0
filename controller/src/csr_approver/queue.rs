//! The open requests. Their number is limited, and so is that of one user, who must not delay the
//! others: a user has at most [`OF_ONE_USER`] of them in the queue, and after [`BURST`] decisions
//! has to wait for the next ones.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use kubeapi::Allowance;
use tokio::time::Instant;

use crate::csr_approver::request::Request;

/// The most open requests that are known at a time, of some 500 bytes each: one of every node of
/// the largest cluster that Kubernetes supports. The others stay in the API server.
pub(super) const LONGEST_QUEUE: usize = 5000;
/// The most of one user. A node that is started again and again leaves one each time.
pub(super) const OF_ONE_USER: usize = 4;
/// Decisions that a user has at once.
const BURST: u32 = 4;
/// After a burst, a user has one in this time. Certificates of ten minutes are
/// renewed each five to seven.
const REFILL: Duration = Duration::from_secs(15);

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    users: HashMap<String, User>,
    /// Requests that have found no place.
    left_out: u64,
}

#[derive(Debug)]
struct Waiting {
    request: Arc<Request>,
    due: Instant,
}

/// What a user has left.
#[derive(Debug)]
struct User {
    waiting: usize,
    decisions: Allowance,
}

/// What became of a request that was put into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queued {
    Waits,
    TooManyOfUser,
    TooMany,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// To be decided now. It is not in the queue any more.
    Ready(Arc<Request>),
    /// Nothing before this moment.
    At(Instant),
    /// No request waits. `left_out`: so many have found no place before.
    Empty { left_out: u64 },
}

impl Queue {
    /// Adds a request, or replaces it by a newer version.
    pub(super) fn put(&mut self, request: Request, now: Instant) -> Queued {
        if !request.is_open {
            self.remove(&request.name);
            return Queued::Waits;
        }
        if let Some(waiting) =
            self.waiting.iter_mut().find(|other| other.request.name == request.name)
        {
            waiting.request = Arc::new(request);
            return Queued::Waits;
        }
        let of_user = self.users.get(&request.user).map_or(0, |user| user.waiting);
        let queued = if of_user >= OF_ONE_USER {
            Queued::TooManyOfUser
        } else if self.waiting.len() >= LONGEST_QUEUE {
            Queued::TooMany
        } else {
            Queued::Waits
        };
        if queued == Queued::Waits {
            self.push(Arc::new(request), now);
        } else {
            self.left_out += 1;
        }
        queued
    }

    /// Puts back a request that was taken out, until `due`.
    pub(super) fn again(&mut self, request: &Arc<Request>, due: Instant) {
        // A newer version of it may have come meanwhile.
        if !self.waiting.iter().any(|other| other.request.name == request.name) {
            self.push(Arc::clone(request), due);
        }
    }

    fn push(&mut self, request: Arc<Request>, due: Instant) {
        let user = self.users.entry(request.user.clone());
        let new = || User { waiting: 0, decisions: Allowance::full(BURST, REFILL, due) };
        user.or_insert_with(new).waiting += 1;
        self.waiting.push_back(Waiting { request, due });
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(place) = self.waiting.iter().position(|other| &*other.request.name == name) {
            self.take(place);
        }
    }

    /// Forgets the requests, and not what their users have used up.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.users.values_mut().for_each(|user| user.waiting = 0);
    }

    /// All requests are listed again: none is left out.
    pub(super) fn forgive(&mut self) {
        self.left_out = 0;
    }

    /// The oldest request that may be decided at the time `now`.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let may_be_at = |waiting: &Waiting| {
            let user = self.users.get(&waiting.request.user);
            waiting.due.max(user.map_or(now, |user| user.decisions.next(now)))
        };
        if let Some(place) = self.waiting.iter().position(|waiting| may_be_at(waiting) <= now) {
            let request = self.take(place);
            if let Some(user) = self.users.get_mut(&request.user) {
                user.decisions.spend(now);
            }
            return Next::Ready(request);
        }
        match self.waiting.iter().map(may_be_at).min() {
            Some(moment) => Next::At(moment),
            None => {
                // Users without requests whose burst is whole again are like new ones.
                self.users.retain(|_, user| user.waiting > 0 || !user.decisions.is_full(now));
                Next::Empty { left_out: self.left_out }
            }
        }
    }

    fn take(&mut self, place: usize) -> Arc<Request> {
        let waiting = self.waiting.remove(place).expect("the place was just found");
        if let Some(user) = self.users.get_mut(&waiting.request.user) {
            user.waiting = user.waiting.saturating_sub(1);
        }
        waiting.request
    }
}

#[cfg(test)]
mod tests;
