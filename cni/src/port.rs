//! The port of an ADD: written by the server, which writes those of several pods at once, or by the plugin itself; and how far it is.
//!
//! The server is believed in what it says, and is not waited for: whatever it leaves unsaid the plugin finds out in Open vSwitch's database.

use std::time::Duration;

use contract::{names::IfName, wire::PortNews};
use ovsdb::Endpoints;
use tokio::time::{sleep, timeout};

use crate::{
    ask::{News, Server},
    bridge::{Bridge, BridgeError, Datapath, Lookout, Plugged},
    error::Cause,
    installed::{self, Goal},
    plan::Attachment,
    rows,
};

/// How long a server that says nothing new is believed in.
const TRUST: Duration = Duration::from_secs(5);
/// How long a rollback waits for a write that is under way.
const SETTLE: Duration = Duration::from_secs(1);

/// Whoever writes the port, and what is known of it.
#[derive(Debug)]
pub struct Port {
    endpoints: Endpoints,
    patience: Duration,
    /// The session with Open vSwitch, once there has to be one.
    bridge: Option<Bridge>,
    lookout: Option<Lookout>,
    news: Option<News>,
    plugged: Option<Plugged>,
}

impl Port {
    /// One that the server will write; nothing is connected.
    pub fn of_server(endpoints: &Endpoints, patience: Duration) -> Self {
        Self { endpoints: endpoints.clone(), patience, bridge: None, lookout: None, news: None, plugged: None }
    }

    /// One that the plugin will write: connects, and looks at the bridge and out for the port, if its name is known.
    pub async fn of_plugin(endpoints: &Endpoints, patience: Duration, host: Option<IfName>) -> Result<(Self, Datapath), BridgeError> {
        let mut port = Self::of_server(endpoints, patience);
        let lookout = port.bridge().await?.look_out(host).await?;
        let datapath = lookout.datapath;
        port.lookout = Some(lookout);
        Ok((port, datapath))
    }

    /// Writes the rows, or has them written.
    pub async fn write(&mut self, server: &Server, attachment: &Attachment, host: &IfName) -> Result<(), BridgeError> {
        if self.bridge.is_none() {
            self.news = server.write_port(&rows::request(attachment, host)).await;
            if self.has_heard(PortNews::Written).await {
                return Ok(());
            }
        }
        let lookout = self.lookout.take();
        self.plugged = Some(self.bridge().await?.plug(attachment, host, lookout).await?);
        Ok(())
    }

    /// Waits until the port has reached the goal, or cannot reach it any more.
    pub async fn reach(&mut self, goal: Goal, attachment: &Attachment, host: &IfName) -> Result<(), Cause> {
        let wanted = match goal {
            Goal::Ofport => PortNews::Numbered,
            Goal::OvnInstalled => PortNews::Installed,
        };
        if self.plugged.is_none() && self.has_heard(wanted).await {
            return Ok(());
        }
        let plugged = match &mut self.plugged {
            Some(plugged) => plugged,
            empty @ None => {
                let bridge = connected(&mut self.bridge, &self.endpoints, self.patience).await?;
                let found = bridge.find(attachment, host).await?;
                empty.insert(match found {
                    Some(plugged) => plugged,
                    None => bridge.plug(attachment, host, None).await?,
                })
            }
        };
        Ok(installed::wait_for(goal, plugged, &attachment.iface_id).await?)
    }

    /// Gives up: once a write that is under way has come to its end, so that what it wrote can be found.
    pub async fn give_up(mut self) -> Option<Bridge> {
        if let Some(news) = &mut self.news
            && news.last.is_none()
        {
            // Neither silence nor the server's end tells more.
            let _ = timeout(SETTLE, news.next()).await;
        }
        self.bridge
    }

    /// Whether the server says so; false when it has nothing more to say.
    async fn has_heard(&mut self, wanted: PortNews) -> bool {
        let Some(news) = &mut self.news else { return false };
        while news.last.is_none_or(|last| last < wanted) {
            let silence = sleep(TRUST);
            let heard = tokio::select! {
                heard = news.next() => heard,
                () = silence => None,
            };
            if heard.is_none_or(|news| news == PortNews::Unknown) {
                self.news = None;
                return false;
            }
        }
        true
    }

    async fn bridge(&mut self) -> Result<&Bridge, BridgeError> {
        connected(&mut self.bridge, &self.endpoints, self.patience).await
    }
}

async fn connected<'a>(bridge: &'a mut Option<Bridge>, endpoints: &Endpoints, patience: Duration) -> Result<&'a Bridge, BridgeError> {
    match bridge {
        Some(bridge) => Ok(bridge),
        empty @ None => Ok(empty.insert(Bridge::connect(endpoints, patience).await?)),
    }
}
