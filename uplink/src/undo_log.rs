//! The undo log of a move: each step is done and recorded, so that all steps can be undone in
//! reverse order.
//!
//! Knows single steps; `to_bridge` and `to_nic` decide which ones, and in which order.

use std::{io, mem};

use contract::names::IfName;
use futures_util::StreamExt;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{RouteNetlinkMessage, address::AddressMessage, route::RouteMessage};
use nix::libc::{EADDRNOTAVAIL, EEXIST, ENODEV, ESRCH};
use podnet::{link::into_io, nftables::ingress};
use rtnetlink::Handle;

use crate::{
    BridgeError,
    failpoint::{Failpoint, Hit},
    ip_config::{
        IpConfig, address_on, is_multipath, route_over, sendable, shown_address, shown_route,
    },
    nic::Nic,
    ovs::{Made, Ovs, OvsError},
};

/// A step that failed, or whose undo failed.
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

/// A step that was done, with all that its undo needs.
enum Done {
    InDatabase(Made),
    /// The address was not there before.
    AddressAdded(AddressMessage),
    AddressRemoved(AddressMessage),
    RouteMoved {
        before: RouteMessage,
        after: RouteMessage,
    },
    /// The kernel's own stack ignores what arrives at the NIC.
    Ignored(IfName),
    /// It heeds it again.
    Heeded(IfName),
}

/// The undo log.
pub(crate) struct UndoLog<'a> {
    netlink: &'a Handle,
    ovs: &'a Ovs,
    done: Vec<Done>,
    failpoint: Failpoint,
}

impl<'a> UndoLog<'a> {
    pub(crate) fn new(netlink: &'a Handle, ovs: &'a Ovs) -> Self {
        Self { netlink, ovs, done: Vec::new(), failpoint: Failpoint::default() }
    }

    /// A failpoint before a step that is not recorded here.
    pub(crate) fn pass(&mut self) -> Result<(), StepError> {
        Ok(self.failpoint.pass()?)
    }

    /// Records a change of the database.
    pub(crate) fn put_down(&mut self, made: Made) {
        self.done.push(Done::InDatabase(made));
    }

    /// Brings a link up. Not undone: while the link was down, the node was not reachable through it
    /// anyway.
    pub(crate) async fn set_up(&mut self, nic: &Nic) -> Result<(), StepError> {
        self.pass()?;
        let what = || format!("bring {} up", nic.name);
        nic.set_up(self.netlink).await.map_err(|error| StepError::Kernel { what: what(), error })
    }

    /// Moves the addresses and routes of one link to another.
    ///
    /// First all addresses are added to the other link, then the routes move, and last the
    /// addresses are removed from the first link, in reverse order, because the kernel removes
    /// secondary addresses together with their primary one. The node has each of its addresses and
    /// routes at every moment.
    pub(crate) async fn transfer(
        &mut self,
        ip_config: &IpConfig,
        from: &Nic,
        to: &Nic,
    ) -> Result<(), StepError> {
        for address in &ip_config.addresses {
            self.add(address_on(address, from, to), to).await?;
        }
        for route in &ip_config.routes {
            self.pass()?;
            let (before, after) = (sendable(route), route_over(route, from.index, to.index));
            // Recorded before it is done: a failure may leave half of it done.
            self.done.push(Done::RouteMoved { before: before.clone(), after: after.clone() });
            self.replace(&before, &after).await?;
        }
        for address in ip_config.addresses.iter().rev() {
            self.pass()?;
            // For the undo: the address on its own link, but without duplicate address detection.
            let own = address_on(address, from, from);
            self.delete_address(&own).await?;
            self.done.push(Done::AddressRemoved(own));
        }
        Ok(())
    }

    /// Has the kernel's own stack ignore what arrives at the NIC, whose bridge is in user space.
    pub(crate) async fn ignore(&mut self, nic: &Nic) -> Result<(), StepError> {
        self.pass()?;
        let name = name_of(nic)?;
        if ingress::ignore(&name).await.map_err(|error| ingress_error(&name, error))? {
            self.done.push(Done::Ignored(name));
        }
        Ok(())
    }

    /// Has it heed it again.
    pub(crate) async fn heed(&mut self, nic: &Nic) -> Result<(), StepError> {
        self.pass()?;
        let name = name_of(nic)?;
        if ingress::heed(&name).await.map_err(|error| ingress_error(&name, error))? {
            self.done.push(Done::Heeded(name));
        }
        Ok(())
    }

    /// Undoes all steps, as far as possible. Returns `error` with the failures of the undo.
    pub(crate) async fn undo(mut self, error: StepError) -> BridgeError {
        let mut undo_errors = Vec::new();
        for step in mem::take(&mut self.done).into_iter().rev() {
            let undone = match step {
                Done::InDatabase(made) => self.unmake(&made, &error).await,
                Done::AddressAdded(address) => self.delete_address(&address).await,
                Done::AddressRemoved(address) => self.add_address(&address).await.map(drop),
                Done::RouteMoved { before, after } => self.replace(&after, &before).await,
                Done::Ignored(nic) => {
                    ingress::heed(&nic).await.map(drop).map_err(|error| ingress_error(&nic, error))
                }
                Done::Heeded(nic) => ingress::ignore(&nic)
                    .await
                    .map(drop)
                    .map_err(|error| ingress_error(&nic, error)),
            };
            undo_errors.extend(undone.err());
        }
        BridgeError::Failed { error: Box::new(error), undo_errors }
    }

    /// Undoes a change of the database and waits for ovs-vswitchd. If ovs-vswitchd was too slow
    /// before, there is no wait: it has made nothing that it would have to remove, and would only
    /// be waited for once more.
    async fn unmake(&self, made: &Made, error: &StepError) -> Result<(), StepError> {
        self.ovs.unmake(made).await?;
        if matches!(error, StepError::Ovs(OvsError::Slow)) {
            Ok(())
        } else {
            Ok(self.ovs.settle(&[]).await?)
        }
    }

    async fn add(&mut self, address: AddressMessage, to: &Nic) -> Result<(), StepError> {
        self.pass()?;
        debug_assert_eq!(address.header.index, to.index);
        if self.add_address(&address).await? {
            self.done.push(Done::AddressAdded(address));
        }
        Ok(())
    }

    /// Adds an address. Returns false if it was there already: then it gets the lifetime of this
    /// one.
    async fn add_address(&self, address: &AddressMessage) -> Result<bool, StepError> {
        let message = RouteNetlinkMessage::NewAddress(address.clone());
        match self.send(message, NLM_F_CREATE | netlink_packet_core::NLM_F_EXCL).await {
            // An earlier run that was killed has added it, or a DHCP client has renewed its lease
            // on the other link. The undo then must not remove it.
            Err(error) if error.raw_os_error() == Some(EEXIST) => {
                let renewed = RouteNetlinkMessage::NewAddress(address.clone());
                self.send(renewed, NLM_F_REPLACE).await.map(|()| false).map_err(|error| {
                    StepError::Kernel {
                        what: format!(
                            "renew address {} of link {}",
                            shown_address(address),
                            address.header.index
                        ),
                        error,
                    }
                })
            }
            Err(error) => Err(StepError::Kernel {
                what: format!(
                    "add address {} to link {}",
                    shown_address(address),
                    address.header.index
                ),
                error,
            }),
            Ok(()) => Ok(true),
        }
    }

    async fn delete_address(&self, address: &AddressMessage) -> Result<(), StepError> {
        match self.send(RouteNetlinkMessage::DelAddress(address.clone()), 0).await {
            Err(error) if !is_gone(&error) => Err(StepError::Kernel {
                what: format!(
                    "remove address {} from link {}",
                    shown_address(address),
                    address.header.index
                ),
                error,
            }),
            _ => Ok(()),
        }
    }

    /// Replaces a route by another one to the same destination. A route with one next hop is
    /// appended, and the old one is removed afterwards: `NLM_F_REPLACE` would hit the first route
    /// to that destination, which may be that of another link. A multipath route is one object and
    /// is replaced.
    async fn replace(&self, old: &RouteMessage, new: &RouteMessage) -> Result<(), StepError> {
        let how = if is_multipath(new) { NLM_F_REPLACE } else { NLM_F_APPEND };
        match self.send(RouteNetlinkMessage::NewRoute(new.clone()), NLM_F_CREATE | how).await {
            // An earlier run that was killed may have added the new route; the old one still has to
            // go.
            Err(error) if error.raw_os_error() != Some(EEXIST) => {
                return Err(StepError::Kernel {
                    what: format!("move route {}", shown_route(new)),
                    error,
                });
            }
            _ => {}
        }
        if is_multipath(new) {
            return Ok(());
        }
        match self.send(RouteNetlinkMessage::DelRoute(old.clone()), 0).await {
            Err(error) if !is_gone(&error) => Err(StepError::Kernel {
                what: format!("remove the old route {}", shown_route(old)),
                error,
            }),
            _ => Ok(()),
        }
    }

    async fn send(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut request =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut answers = self.netlink.clone().request(request).map_err(into_io)?;
        while let Some(answer) = answers.next().await {
            // An error without a code is the acknowledgement (netlink(7)).
            if let NetlinkPayload::Error(error) = answer.payload
                && error.code.is_some()
            {
                return Err(error.to_io());
            }
        }
        Ok(())
    }
}

pub(crate) fn name_of(nic: &Nic) -> Result<IfName, StepError> {
    nic.name.parse().map_err(|error| StepError::Kernel {
        what: format!("the name of link {}", nic.index),
        error: io::Error::other(error),
    })
}

fn ingress_error(nic: &IfName, error: io::Error) -> StepError {
    StepError::Kernel {
        what: format!("nftables: what the host itself does with frames that {nic} receives"),
        error,
    }
}

/// Whether the object is gone already: the kernel removes routes together with their address or
/// link.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EADDRNOTAVAIL | ESRCH | ENODEV))
}
