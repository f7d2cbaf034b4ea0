//! The port of an ADD: written by the server, which writes those of several pods at once, or by the plugin itself; and how far it is.
//!
//! The server is believed in what it says, and is not waited for: whatever it leaves unsaid the plugin finds out in Open vSwitch's database.

use std::{fmt, pin::Pin, time::Duration};

use contract::{names::IfName, wire::PortNews};
use ovsdb::Endpoints;
use podnet::{
    bridge::{Bridge, BridgeError, Datapath, Lookout, Plugged},
    installed::{self, Goal, NotInstalled},
    link::{self, LinkError},
    netlink::Netlink,
    plan::{Attachment, Identity},
    rows,
};
use tokio::time::timeout;

use crate::{
    ask::{News, Server},
    failpoint,
};

/// How long a server that says nothing new is believed in.
const TRUST: Duration = Duration::from_secs(2);
/// How long a rollback waits for a write that is under way.
const SETTLE: Duration = Duration::from_secs(1);

/// Why a port is not there, or does not work.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
}

/// Whoever writes the port, and what is known of it.
pub struct Port<'a> {
    server: &'a Server,
    endpoints: &'a Endpoints,
    patience: Duration,
    /// The session with Open vSwitch, once there has to be one.
    bridge: Option<Bridge>,
    lookout: Option<Lookout>,
    /// A request to the server that has not been answered. Kept here, so that who gives up can wait for its end.
    asking: Option<Asking<'a>>,
    news: Option<News>,
    plugged: Option<Plugged>,
}

impl fmt::Debug for Port<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bridge, news, plugged, .. } = self;
        formatter.debug_struct("Port").field("bridge", bridge).field("news", news).field("plugged", plugged).finish_non_exhaustive()
    }
}

type Asking<'a> = Pin<Box<dyn Future<Output = Option<News>> + 'a>>;

impl<'a> Port<'a> {
    /// One that the server will write; nothing is connected.
    pub fn of_server(server: &'a Server, endpoints: &'a Endpoints, patience: Duration) -> Self {
        Self { server, endpoints, patience, bridge: None, lookout: None, asking: None, news: None, plugged: None }
    }

    /// Makes it one that the plugin will write: connects, and looks at the bridge and out for the port, if its name is known.
    pub async fn look_out(&mut self, host: Option<IfName>) -> Result<Datapath, BridgeError> {
        let lookout = self.bridge().await?.look_out(host).await?;
        let datapath = lookout.datapath;
        self.lookout = Some(lookout);
        Ok(datapath)
    }

    /// Makes sure that ovs-vswitchd has let go of the interface's name, on which the sandbox may have had a link before: its port would be
    /// taken for the new one, with the socket of the link that is gone; and with its last breath it would take the new link down, which it
    /// knows by name only. Does nothing to a port whose link is there.
    pub async fn vacate(&mut self, identity: &Identity, host: &Netlink) -> Result<(), PortError> {
        let Some(name) = identity.sandbox.host_if_name_beforehand(&identity.network) else { return Ok(()) };
        let bridge = self.bridge().await?;
        let left = bridge.named(name.as_str()).await?.filter(|row| row.belongs_to(identity));
        if let (Some(row), None) = (left, link::find(host, name.as_str())?) {
            bridge.unplug(identity, vec![row]).await?;
        }
        Ok(bridge.settle().await?)
    }

    /// Writes the rows, or has them written.
    pub async fn write(&mut self, attachment: &Attachment, host: &IfName) -> Result<(), BridgeError> {
        if self.bridge.is_none() {
            let (server, request) = (self.server, rows::request(attachment, host));
            self.asking = Some(Box::pin(async move { server.write_port(&request).await }));
            if self.has_heard(PortNews::Written).await {
                return Ok(());
            }
        }
        let lookout = self.lookout.take();
        self.plugged = Some(self.bridge().await?.plug(attachment, host, lookout).await?);
        Ok(())
    }

    /// Waits until the port has reached the goal, or cannot reach it any more.
    pub async fn reach(&mut self, goal: Goal, attachment: &Attachment, host: &IfName) -> Result<(), PortError> {
        if self.plugged.is_none() && self.has_heard(goal.news()).await {
            return Ok(());
        }
        let plugged = match self.plugged.take() {
            Some(plugged) => plugged,
            // It was there: the server has said so.
            None => self.bridge().await?.find(attachment, host).await?.ok_or_else(|| NotInstalled::Removed(host.clone()))?,
        };
        let plugged = self.plugged.insert(plugged);
        Ok(installed::wait_for(goal, plugged, &attachment.iface_id).await?)
    }

    /// Gives up: once a write that is under way has come to its end, so that what it wrote can be found.
    pub async fn give_up(mut self) -> Option<Bridge> {
        if self.plugged.is_none() {
            // Neither silence nor the server's end tells more.
            let _ = timeout(SETTLE, self.next_until(PortNews::Written)).await;
        }
        self.bridge
    }

    /// Whether the server says so; false when it has nothing more to say, for a while.
    async fn has_heard(&mut self, wanted: PortNews) -> bool {
        let heard = self.next_until(wanted).await;
        if !heard {
            (self.asking, self.news) = (None, None);
        }
        heard
    }

    /// Listens until the server says so; false when it has nothing more to say, for a while. Cancellation-safe.
    async fn next_until(&mut self, wanted: PortNews) -> bool {
        let trust = failpoint::patience(TRUST);
        if let Some(asking) = &mut self.asking {
            let Ok(answer) = timeout(trust, asking).await else { return false };
            (self.asking, self.news) = (None, answer);
        }
        let Some(news) = &mut self.news else { return false };
        while news.last.is_none_or(|last| last < wanted) {
            match timeout(trust, news.next()).await {
                Ok(Some(PortNews::Written | PortNews::Numbered | PortNews::Installed)) => {}
                Ok(Some(PortNews::Unknown) | None) | Err(_) => return false,
            }
        }
        true
    }

    async fn bridge(&mut self) -> Result<&Bridge, BridgeError> {
        match &mut self.bridge {
            Some(bridge) => Ok(bridge),
            empty @ None => Ok(empty.insert(Bridge::connect(self.endpoints, self.patience).await?)),
        }
    }
}
