//! The steps of a move, each done at once and put down, so that all can be taken back in reverse order.
//!
//! Knows single steps; which ones, and why in which order, is the part of `to_bridge` and `to_nic`.

use std::{io, mem};

use futures_util::StreamExt;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{RouteNetlinkMessage, address::AddressMessage, route::RouteMessage};
use nix::libc::{EADDRNOTAVAIL, EEXIST, ENODEV, ESRCH};
use podnet::link::into_io;
use rtnetlink::Handle;

use crate::{
    BridgeError,
    belongings::{Belongings, address_on, is_multipath, route_over, sendable, shown_address, shown_route},
    failpoint::{Failpoint, Hit},
    nic::Nic,
    ovs::{Made, Ovs, OvsError},
};

/// A step that was not done, or not undone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error("{what}")]
    Kernel {
        what: String,
        #[source]
        error: io::Error,
    },
    #[error(transparent)]
    Ovs(#[from] OvsError),
    #[error(transparent)]
    Hit(#[from] Hit),
}

/// What was done, in a form that can be undone.
enum Done {
    InDatabase(Made),
    /// It was not there before.
    AddressAdded(AddressMessage),
    AddressRemoved(AddressMessage),
    RouteMoved {
        before: RouteMessage,
        after: RouteMessage,
    },
}

/// The steps so far.
pub(crate) struct Journal<'a> {
    netlink: &'a Handle,
    ovs: &'a Ovs,
    done: Vec<Done>,
    failpoint: Failpoint,
}

impl<'a> Journal<'a> {
    pub(crate) fn new(netlink: &'a Handle, ovs: &'a Ovs) -> Self {
        Self { netlink, ovs, done: Vec::new(), failpoint: Failpoint::default() }
    }

    /// A place where a step may fail, for what is not a step to undo.
    pub(crate) fn pass(&mut self) -> Result<(), StepError> {
        Ok(self.failpoint.pass()?)
    }

    /// Something that was done in the database.
    pub(crate) fn put_down(&mut self, made: Made) {
        self.done.push(Done::InDatabase(made));
    }

    /// Brings a link up. Not undone: where it was down, nobody reached the node through it.
    pub(crate) async fn set_up(&mut self, nic: &Nic) -> Result<(), StepError> {
        self.pass()?;
        let what = || format!("bring {} up", nic.name);
        nic.set_up(self.netlink).await.map_err(|error| StepError::Kernel { what: what(), error })
    }

    /// Gives what one link has to another.
    ///
    /// First the addresses appear on the other, then the routes go there, and last the addresses leave the first, the one that others
    /// depend on at the end: at no moment is the node without an address or a route that it had.
    pub(crate) async fn transfer(&mut self, belongings: &Belongings, from: &Nic, to: &Nic) -> Result<(), StepError> {
        for address in &belongings.addresses {
            self.add(address_on(address, from, to), to).await?;
        }
        for route in &belongings.routes {
            self.pass()?;
            let (before, after) = (sendable(route), route_over(route, from.index, to.index));
            // Put down before: half of it may be done.
            self.done.push(Done::RouteMoved { before: before.clone(), after: after.clone() });
            self.replace(&before, &after).await?;
        }
        for address in belongings.addresses.iter().rev() {
            self.pass()?;
            // On its own link and as it is now, but unprobed, should it have to come back.
            let own = address_on(address, from, from);
            self.delete_address(&own).await?;
            self.done.push(Done::AddressRemoved(own));
        }
        Ok(())
    }

    /// Takes everything back, as far as possible, and says why it had to.
    pub(crate) async fn undo(mut self, error: StepError) -> BridgeError {
        let mut undo_errors = Vec::new();
        for step in mem::take(&mut self.done).into_iter().rev() {
            let undone = match step {
                Done::InDatabase(made) => self.unmake(&made, &error).await,
                Done::AddressAdded(address) => self.delete_address(&address).await,
                Done::AddressRemoved(address) => self.add_address(&address).await.map(drop),
                Done::RouteMoved { before, after } => self.replace(&after, &before).await,
            };
            undo_errors.extend(undone.err());
        }
        BridgeError::Failed { error: Box::new(error), undo_errors }
    }

    /// Where ovs-vswitchd does not act, it has made nothing that it would have to take back.
    async fn unmake(&self, made: &Made, error: &StepError) -> Result<(), StepError> {
        self.ovs.unmake(made).await?;
        if matches!(error, StepError::Ovs(OvsError::Slow)) { Ok(()) } else { Ok(self.ovs.settle(&[]).await?) }
    }

    async fn add(&mut self, address: AddressMessage, to: &Nic) -> Result<(), StepError> {
        self.pass()?;
        debug_assert_eq!(address.header.index, to.index);
        if self.add_address(&address).await? {
            self.done.push(Done::AddressAdded(address));
        }
        Ok(())
    }

    /// Whether it was not there before.
    async fn add_address(&self, address: &AddressMessage) -> Result<bool, StepError> {
        let message = RouteNetlinkMessage::NewAddress(address.clone());
        match self.send(message, NLM_F_CREATE | netlink_packet_core::NLM_F_EXCL).await {
            Err(error) if error.raw_os_error() == Some(EEXIST) => Ok(false),
            Err(error) => {
                Err(StepError::Kernel { what: format!("add address {} to link {}", shown_address(address), address.header.index), error })
            }
            Ok(()) => Ok(true),
        }
    }

    async fn delete_address(&self, address: &AddressMessage) -> Result<(), StepError> {
        match self.send(RouteNetlinkMessage::DelAddress(address.clone()), 0).await {
            Err(error) if !is_gone(&error) => Err(StepError::Kernel {
                what: format!("remove address {} from link {}", shown_address(address), address.header.index),
                error,
            }),
            _ => Ok(()),
        }
    }

    /// One route for another of the same destination. A single one is added behind the other before that is removed: to replace it would
    /// hit the first of that destination, whosever it is. One with several ways is one thing, and replaced.
    async fn replace(&self, old: &RouteMessage, new: &RouteMessage) -> Result<(), StepError> {
        let how = if is_multipath(new) { NLM_F_REPLACE } else { NLM_F_APPEND };
        match self.send(RouteNetlinkMessage::NewRoute(new.clone()), NLM_F_CREATE | how).await {
            Err(error) if error.raw_os_error() != Some(EEXIST) => {
                return Err(StepError::Kernel { what: format!("move route {}", shown_route(new)), error });
            }
            _ => {}
        }
        if is_multipath(new) {
            return Ok(());
        }
        match self.send(RouteNetlinkMessage::DelRoute(old.clone()), 0).await {
            Err(error) if !is_gone(&error) => Err(StepError::Kernel { what: format!("remove the old route {}", shown_route(old)), error }),
            _ => Ok(()),
        }
    }

    async fn send(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut request = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut answers = self.netlink.clone().request(request).map_err(into_io)?;
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(error) = answer.payload
                && error.code.is_some()
            {
                return Err(error.to_io());
            }
        }
        Ok(())
    }
}

/// The kernel was faster: what goes with an address or a link is gone with it.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EADDRNOTAVAIL | ESRCH | ENODEV))
}
