//! The port of an ADD, and its progress. The plugin adds it to the bridge. When many pods start at
//! once, the server does, for all of them in one transaction.
//!
//! Status messages from the server are optional. If one is missing, the plugin reads OVSDB itself.

use std::{fmt, io, pin::Pin, slice, time::Duration};

use contract::{
    names::IfName,
    wire::{BridgeFacts, PortStatus, PortWriter},
};
use podnet::{
    bridge::{ArmedMonitor, Bridge, BridgeError, Datapath, Plugged},
    installed::{self, Goal, NotInstalled},
    link::{self, LinkError},
    netlink::Netlink,
    nftables::ingress::Devices,
    plan::{Attachment, Identity},
    settings::Settings,
};
use tokio::time::timeout;

use crate::{
    ask::{AskError, News, Server},
    failpoint,
};

/// How long the plugin waits for the next status message before it turns to OVSDB itself. Much
/// shorter, and each ADD on a busy node opens a session that it does not need; much longer, and a
/// server that hangs delays every ADD.
const TRUST: Duration = Duration::from_secs(2);
/// How long a rollback waits for an outstanding write. Without the wait, the rows could appear
/// after the rollback has looked for them. A server that hangs delays the rollback by this much.
const SETTLE: Duration = Duration::from_secs(1);

/// Why a port is missing, or does not work.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    /// The server does not write it, because the pod has changed, and the plugin must not write it
    /// either.
    #[error(transparent)]
    Refused(AskError),
    /// Without this the pod would reach the host past OVN.
    #[error("nftables: have the host's own stack ignore what {link} receives")]
    Ingress { link: IfName, source: io::Error },
}

/// A port, by the program that writes it, which [`Port::decide`] chooses. The state only changes to
/// one further down this list.
#[derive(Debug)]
pub enum Port<'a> {
    /// The server writes the port, and reports its progress.
    ByServer(ByServer<'a>),
    /// The plugin does what is still to be done, in this session with OVSDB.
    ByPlugin(Bridge, Option<ArmedMonitor>),
    /// The port exists, and the plugin monitors its Interface row.
    Seen(Bridge, Plugged),
}

/// The server as the writer of a port, and what the plugin needs to take its place.
pub struct ByServer<'a> {
    server: &'a Server,
    settings: &'a Settings,
    said: Said<'a>,
}

/// The server's status messages on the port.
enum Said<'a> {
    /// None yet, or no more.
    Nothing,
    /// The outstanding request, so that rollback can await it.
    Asked(Pin<Box<dyn Future<Output = Result<Option<News>, AskError>> + 'a>>),
    Some(News),
}

/// Connects to OVSDB, reads the bridge, and starts to monitor the interface's port if its name is
/// known in advance.
///
/// # Errors
/// OVSDB is out of reach or too slow, or there is no integration bridge.
pub async fn watch_interface(
    settings: &Settings,
    identity: &Identity,
) -> Result<(Bridge, ArmedMonitor), BridgeError> {
    let bridge = connect(settings).await?;
    let armed =
        bridge.watch_interface(identity.sandbox.host_if_name_beforehand(&identity.network)).await?;
    Ok((bridge, armed))
}

/// Connects to OVSDB. Each answer may take as long as the whole ADD.
async fn connect(settings: &Settings) -> Result<Bridge, BridgeError> {
    Bridge::connect(&settings.ovsdb, settings.timeout).await
}

/// Waits until ovs-vswitchd has let go of the interface's name, which an earlier link of the
/// sandbox may have had. Otherwise ovs-vswitchd could take that link's port for the new one, with
/// the socket of the link that is gone. And when it closes the old port it sets the device of that
/// *name* down, which by then is the new link. A port whose link exists stays as it is.
async fn vacate(bridge: &Bridge, identity: &Identity, host: &Netlink) -> Result<(), PortError> {
    let Some(name) = identity.sandbox.host_if_name_beforehand(&identity.network) else {
        return Ok(());
    };
    let left = bridge.named(name.as_str()).await?.filter(|row| row.belongs_to(identity));
    if let (Some(row), None) = (left, link::find(host, name.as_str())?) {
        bridge.unplug(identity, vec![row]).await?;
    }
    // Even if no row was left: ovs-vswitchd may still have to process the removal of one.
    Ok(bridge.settle().await?)
}

/// Has the host's own stack ignore what the link receives, unless the kernel's datapath takes it
/// away anyway.
async fn keep_from_host(link: &IfName, datapath: Datapath) -> Result<(), PortError> {
    match datapath {
        Datapath::Kernel => Ok(()),
        Datapath::Userspace => Devices::Ports
            .ignore(slice::from_ref(link))
            .await
            .map_err(|source| PortError::Ingress { link: link.clone(), source }),
    }
}

impl<'a> Port<'a> {
    /// Decides which program writes the port: the one that the server names (`of_server`); the
    /// plugin, if the server knows no bridge, or if the plugin has a session already (`own`). A
    /// server that knows the bridge also knows that the interface's name is free.
    ///
    /// # Errors
    /// OVSDB is out of reach, too slow or refuses; or the kernel cannot tell whether the
    /// interface's link exists.
    pub async fn decide(
        server: &'a Server,
        settings: &'a Settings,
        identity: &Identity,
        host: &Netlink,
        of_server: Option<BridgeFacts>,
        own: Option<(Bridge, ArmedMonitor)>,
    ) -> Result<(Self, Datapath), PortError> {
        let (bridge, armed) = match (of_server, own) {
            (Some(BridgeFacts { datapath_type, writer }), None) => {
                let port = match failpoint::port_writer(writer) {
                    PortWriter::Plugin => Self::ByPlugin(connect(settings).await?, None),
                    PortWriter::Server => {
                        Self::ByServer(ByServer { server, settings, said: Said::Nothing })
                    }
                };
                return Ok((port, Datapath::of(&datapath_type)));
            }
            // The server's answer says that the name is free, so nothing has to be vacated.
            (Some(_), Some(own)) => own,
            (None, own) => {
                let (bridge, armed) = match own {
                    Some(own) => own,
                    None => watch_interface(settings, identity).await?,
                };
                vacate(&bridge, identity, host).await?;
                (bridge, armed)
            }
        };
        let datapath = armed.datapath;
        Ok((Self::ByPlugin(bridge, Some(armed)), datapath))
    }

    /// Writes the rows, or has the server write them. Whichever program writes them has the host's
    /// own stack ignore the link first, on a userspace datapath. The pod's end is still down then:
    /// no frame comes before.
    ///
    /// # Errors
    /// The pod is no longer what the server has told this plugin; OVSDB is out of reach, too slow
    /// or refuses; another sandbox or pod has the port's name or address; or the kernel's stack
    /// cannot be kept from the link.
    pub async fn write(
        &mut self,
        attachment: &Attachment,
        host: &IfName,
        datapath: Datapath,
    ) -> Result<(), PortError> {
        loop {
            *self = match self {
                Self::ByServer(server) => {
                    if server.writes(attachment, host).await? {
                        return Ok(());
                    }
                    // If the server has written the port all the same, `plug` finds the row and
                    // replaces it.
                    Self::ByPlugin(connect(server.settings).await?, None)
                }
                Self::ByPlugin(bridge, armed) => {
                    keep_from_host(host, datapath).await?;
                    let plugged = bridge.plug(attachment, host, armed.take()).await?;
                    Self::Seen(bridge.clone(), plugged)
                }
                Self::Seen(..) => return Ok(()),
            };
        }
    }

    /// The program that writes the rows.
    pub fn writer(&self) -> &'static str {
        match self {
            Self::ByServer(_) => "the node's server",
            Self::ByPlugin(..) | Self::Seen(..) => "this plugin",
        }
    }

    /// Waits until the port has reached the goal, or can no longer reach it.
    ///
    /// # Errors
    /// [`PortError::NotInstalled`] if it cannot reach the goal any more; OVSDB is out of reach or
    /// too slow.
    pub async fn reach(
        &mut self,
        goal: Goal,
        attachment: &Attachment,
        host: &IfName,
    ) -> Result<(), PortError> {
        loop {
            *self = match self {
                Self::ByServer(server) => {
                    if server.says(goal.news()).await? {
                        return Ok(());
                    }
                    Self::ByPlugin(connect(server.settings).await?, None)
                }
                Self::ByPlugin(bridge, _) => {
                    // The server has reported the port as written, so a port that is missing was
                    // removed.
                    let plugged = bridge
                        .find(attachment, host)
                        .await?
                        .ok_or_else(|| NotInstalled::Removed(host.clone()))?;
                    Self::Seen(bridge.clone(), plugged)
                }
                Self::Seen(_, plugged) => {
                    return Ok(installed::wait_for(goal, plugged, &attachment.iface_id).await?);
                }
            };
        }
    }

    /// Gives the port up. Waits for an outstanding write first, so that the rollback finds what it
    /// wrote. Returns the session, if there is one.
    pub async fn give_up(self) -> Option<Bridge> {
        match self {
            Self::ByServer(mut server) => {
                // The outcome does not matter: the rollback looks for rows in any case.
                let _ = timeout(SETTLE, server.says(PortStatus::Written)).await;
                None
            }
            Self::ByPlugin(bridge, _) | Self::Seen(bridge, _) => Some(bridge),
        }
    }
}

impl ByServer<'_> {
    /// Asks the server for the port, and returns whether it has written it.
    async fn writes(&mut self, attachment: &Attachment, host: &IfName) -> Result<bool, PortError> {
        let (server, request) = (self.server, attachment.port_request(host));
        self.said = Said::Asked(Box::pin(async move { server.write_port(&request).await }));
        self.says(PortStatus::Written).await
    }

    /// Waits for the message `wanted` or a later one. `false` if no more messages come, or none for
    /// a while. Cancellation-safe.
    async fn says(&mut self, wanted: PortStatus) -> Result<bool, PortError> {
        let trust = failpoint::patience(TRUST);
        loop {
            match &mut self.said {
                Said::Nothing => return Ok(false),
                Said::Asked(answer) => {
                    // Polled in place: dropping this future does not drop the request.
                    let answered = timeout(trust, answer).await;
                    self.said = Said::Nothing;
                    if let Some(news) = answered.unwrap_or(Ok(None)).map_err(PortError::Refused)? {
                        self.said = Said::Some(news);
                    }
                }
                Said::Some(news) if news.last.is_some_and(|last| last >= wanted) => {
                    return Ok(true);
                }
                Said::Some(news) => match timeout(trust, news.next()).await {
                    Ok(Some(
                        PortStatus::Written | PortStatus::Numbered | PortStatus::Installed,
                    )) => {}
                    Ok(Some(PortStatus::Unknown) | None) | Err(_) => self.said = Said::Nothing,
                },
            }
        }
    }
}

impl fmt::Debug for ByServer<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let news = if let Said::Some(news) = &self.said { Some(news) } else { None };
        formatter.debug_struct("ByServer").field("news", &news).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
