//! What the network namespace of a pod of this node has, for `ovnkube diagnose`. Changes nothing.

use std::path::Path;

use contract::{
    error::chain,
    external_ids::{ATTACHED_MAC, IFACE_ID, IP_ADDRESSES, POD_IF_NAME, SKIP_IP_CONFIG},
    names::{IfaceId, Network, PodKey},
    paths::{INTEGRATION_BRIDGE, NETNS_DIR},
};
use ovsdb::{Condition, Connection, Datum, Options, SelectedRow, Transaction};
use podnet::{
    bridge::Datapath,
    daemon::PATIENCE,
    pod_look::{
        PodLook,
        wire::{InsideAnswer, InsideInterface, InsideLink, InsideRequest, InsideTables},
    },
};
use tokio::{task::spawn_blocking, time::timeout};

use super::{ApiResponse, HandlerState, SwitchPlaces};
use crate::api_error::ApiError;

impl HandlerState {
    pub(super) async fn inside(&self, request: &InsideRequest) -> Result<ApiResponse, ApiError> {
        let mtu = self.add.mtu.bytes();
        let answer = match self.switch.inside(request, mtu).await {
            Ok(interfaces) => InsideAnswer { interfaces, ..InsideAnswer::default() },
            Err(problem) => InsideAnswer { problem: Some(problem), ..InsideAnswer::default() },
        };
        ApiResponse::json(&InsideAnswer { node: self.node.clone(), ..answer })
    }
}

impl SwitchPlaces {
    /// The pod's interfaces in the cluster's own network; `mtu` is that of new pods.
    async fn inside(
        &self,
        request: &InsideRequest,
        mtu: u32,
    ) -> Result<Vec<InsideInterface>, String> {
        let InsideRequest { namespace, name } = request;
        let pod = PodKey::new(namespace, name).map_err(|error| error.to_string())?;
        let port = IfaceId::new(&pod, &Network::Default).to_string();
        let committed = timeout(PATIENCE, self.committed(&port, mtu)).await;
        let committed =
            committed.map_err(|_| "Open vSwitch's database does not answer".to_owned())??;
        let mut interfaces = Vec::new();
        for interface in committed {
            // The kernel may let a request wait for its lock on links.
            let looked = spawn_blocking(move || look(interface)).await;
            interfaces.push(looked.map_err(|error| error.to_string())?);
        }
        Ok(interfaces)
    }

    /// The ports of the pod, as ADD has written them.
    async fn committed(&self, port: &str, mtu: u32) -> Result<Vec<InsideInterface>, String> {
        let options = Options { connect_timeout: PATIENCE, ..Options::default() };
        let database = Connection::open(&self.ovsdb, "Open_vSwitch", options).await;
        let database = database.map_err(|error| chain(&error))?;
        let mut query = Transaction::new();
        let own = Condition::includes("external_ids", Datum::map([(IFACE_ID, port)]));
        let interfaces = query.select("Interface", own, &["name", "external_ids"]);
        let bridge = Condition::equal("name", INTEGRATION_BRIDGE);
        let bridge = query.select("Bridge", bridge, &["datapath_type"]);
        let outcome = database.transact(query).await.map_err(|error| chain(&error))?;
        let datapath = outcome.rows(bridge).first().and_then(|row| row.string("datapath_type"));
        let is_userspace = Datapath::of(datapath.unwrap_or_default()) == Datapath::Userspace;
        let interface = |row: &SelectedRow| {
            let ids = row.map("external_ids");
            let id = |key: &str| ids.get(key).cloned().unwrap_or_default();
            let is_configured_here = id(SKIP_IP_CONFIG) != "true";
            let addresses = id(IP_ADDRESSES);
            let addresses = addresses.split(',').filter(|_| is_configured_here);
            InsideInterface {
                host_link: row.string("name").unwrap_or_default().to_owned(),
                if_name: id(POD_IF_NAME),
                committed: InsideLink {
                    mac: id(ATTACHED_MAC),
                    mtu,
                    addresses: addresses.filter_map(|text| text.parse().ok()).collect(),
                },
                is_userspace,
                ..InsideInterface::default()
            }
        };
        Ok(outcome.rows(interfaces).iter().map(interface).collect())
    }
}

/// With what the kernel says. Blocks.
fn look(interface: InsideInterface) -> InsideInterface {
    let PodLook { link, addresses, tables } =
        match PodLook::at(&interface.host_link, Path::new(NETNS_DIR)) {
            Ok(look) => look,
            Err(error) => {
                let unseen = Some(format!("{}: {error}", interface.host_link));
                return InsideInterface { unseen, ..interface };
            }
        };
    let (inside, unseen) = match tables {
        Ok(tables) => (Some(tables), None),
        Err(why) => (None, Some(why)),
    };
    // The kernel makes these of the link's own address.
    let is_own = |address: &ipnet::IpNet| match address.addr() {
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
        std::net::IpAddr::V4(_) => false,
    };
    InsideInterface {
        is_up: link.as_ref().is_some_and(|link| link.up),
        found: link.map(|link| InsideLink {
            mac: link.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            mtu: link.mtu,
            addresses: addresses.into_iter().filter(|address| !is_own(address)).collect(),
        }),
        inside: inside.map(|tables| InsideTables {
            routes: tables.routes,
            silent_neighbours: tables.silent_neighbours,
            tx_checksum: tables.tx_checksum,
        }),
        unseen,
        ..interface
    }
}
