//! `master-init`, `minion-init` and `gateway-init`, each in its order.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use contract::{mac::Mac, paths::INTEGRATION_BRIDGE};
use controller::{
    engine::northbound,
    legacy::{self as rows, InitError},
};
use ipnet::Ipv4Net;
use ovsdb::State;
use tokio::time::timeout;
use uplink::host_port::{self, HostPort, HostPortError};

use super::{
    Gateway, Init, LegacyConfig, NodeNetwork, PATIENCE, Uplink,
    cni_files::{self, CniFileError},
    failed,
    switch::{Port, Switch, SwitchError},
};
use crate::{chain, control_plane::Database};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum InitFailure {
    #[error(
        "OVN central database's ip address not set: ovs-vsctl set Open_vSwitch . \
         external_ids:ovn-nb=tcp:IP:6641"
    )]
    NoNorthbound,
    #[error(
        "external_ids:system-id not set: ovs-vsctl set Open_vSwitch . external_ids:system-id=UUID"
    )]
    NoSystemId,
    #[error("give one of --bridge-interface and --physical-interface")]
    NoUplink,
    #[error(
        "there is no bridge {0:?} in Open vSwitch; ovn-k8s-util nics-to-bridge makes one of a NIC"
    )]
    NoBridge(String),
    #[error("northbound database {0}: {1}")]
    Away(String, String),
    #[error(transparent)]
    Rows(#[from] InitError),
    #[error(transparent)]
    Switch(#[from] SwitchError),
    #[error(transparent)]
    HostPort(#[from] HostPortError),
    #[error(transparent)]
    Files(#[from] CniFileError),
}

/// Runs a command. Prints `Initialization complete.`, or why it failed to standard error.
pub fn run(init: &Init, config: &LegacyConfig) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("the runtime of this program: {error}")),
    };
    let done = runtime.block_on(async {
        let switch = Switch::open(&config.ovsdb).await?;
        let northbound = config.northbound.as_ref().ok_or(InitFailure::NoNorthbound)?;
        match init {
            Init::Master(network) => master(network, &switch, northbound, config).await,
            Init::Minion(network) => minion(network, &switch, northbound, config).await,
            Init::Gateway(gateway) => self::gateway(gateway, &switch, northbound).await,
        }
    });
    match done {
        Ok(()) => u8::from(writeln!(stdout(), "Initialization complete.").is_err()).into(),
        Err(error) => failed(&chain(&error)),
    }
}

async fn master(
    network: &NodeNetwork,
    switch: &Switch,
    northbound: &Database,
    config: &LegacyConfig,
) -> Result<(), InitFailure> {
    let port = ManagementPort::of(network, switch);
    write(northbound, &rows::Init::Master(port.rows(network))).await?;
    port.connect(network, switch, config).await
}

async fn minion(
    network: &NodeNetwork,
    switch: &Switch,
    northbound: &Database,
    config: &LegacyConfig,
) -> Result<(), InitFailure> {
    let plugin = cni_files::find(&config.plugin, &config.cni_bin_dir)?;
    let port = ManagementPort::of(network, switch);
    write(northbound, &rows::Init::Minion(port.rows(network))).await?;
    port.connect(network, switch, config).await?;
    // Last: with the configuration, the runtime begins to attach pods.
    cni_files::install(&plugin, &config.cni_bin_dir, &config.cni_conf_dir, network.subnet)?;
    Ok(())
}

/// Writes the rows, or says why the database does not answer.
async fn write(database: &Database, init: &rows::Init) -> Result<(), InitFailure> {
    let (client, updates) = northbound::connect(database.endpoints.clone(), database.options());
    let away = |why: String| InitFailure::Away(database.endpoints.to_string(), why);
    match timeout(PATIENCE, rows::write(updates, init)).await {
        Ok(written) => {
            written?;
            Ok(())
        }
        Err(_) => Err(away(match &*client.state().borrow() {
            State::Connected(_) => format!("no answer within {} s", PATIENCE.as_secs()),
            State::Disconnected(why) => chain(why),
        })),
    }
}

/// The node's own port: its interface, and its addresses.
struct ManagementPort {
    /// At most 15 characters, as the kernel allows.
    link: String,
    mac: Mac,
    own: Ipv4Net,
    router: Ipv4Net,
}

impl ManagementPort {
    /// A port that is there keeps its MAC address.
    fn of(network: &NodeNetwork, switch: &Switch) -> Self {
        let NodeNetwork { subnet, node, cluster: _ } = network;
        let short: String = node.chars().take(11).collect();
        let link = format!("k8s-{short}");
        let address = |number: u32| {
            let address = u32::from(subnet.network()).wrapping_add(number).into();
            Ipv4Net::new_assert(address, subnet.prefix_len())
        };
        let (router, own) = (address(1), address(2));
        let mac = switch.mac(&link).unwrap_or_else(|| Mac::from_ip(own.addr().into()));
        Self { link, mac, own, router }
    }

    fn rows(&self, network: &NodeNetwork) -> rows::NodeNetwork {
        let NodeNetwork { cluster, subnet, node } = network.clone();
        rows::NodeNetwork { node, cluster, subnet, mac: self.mac }
    }

    /// Adds the port to the integration bridge, and gives the host its address and the route to
    /// all pods.
    async fn connect(
        &self,
        network: &NodeNetwork,
        switch: &Switch,
        config: &LegacyConfig,
    ) -> Result<(), InitFailure> {
        let port = Port {
            bridge: INTEGRATION_BRIDGE.to_owned(),
            name: self.link.clone(),
            kind: "internal",
            iface_id: Some(format!("k8s-{}", network.node)),
            mac: Some(self.mac),
            mtu: Some(config.mtu),
            peer: None,
        };
        switch.make(&[port], None).await?;
        let host_port = HostPort {
            link: self.link.clone(),
            address: self.own,
            routes: vec![network.cluster.trunc()],
            via: self.router.addr(),
            is_userspace: switch.is_userspace(),
        };
        Ok(host_port::assign(&host_port).await?)
    }
}

async fn gateway(
    gateway: &Gateway,
    switch: &Switch,
    northbound: &Database,
) -> Result<(), InitFailure> {
    let Gateway { node, uplink, .. } = gateway;
    let uplink = uplink.as_ref().ok_or(InitFailure::NoUplink)?;
    let chassis = switch.external_id("system-id").ok_or(InitFailure::NoSystemId)?.to_owned();
    for text in &gateway.no_networks {
        eprintln!("warning: --rampout-ip-subnets: {text:?} is no IPv4 network; ignored");
    }
    let link = match uplink {
        Uplink::Bridge(bridge) if !switch.has_bridge(bridge) => {
            return Err(InitFailure::NoBridge(bridge.clone()));
        }
        Uplink::Bridge(link) | Uplink::Nic(link) => link,
    };
    let mac = host_port::mac_of(link).await?;
    let interface = format!("{link}_{node}");
    let rows = rows::GatewayRouter {
        node: node.clone(),
        cluster: gateway.cluster,
        chassis,
        address: gateway.address,
        next_hop: gateway.next_hop,
        interface: interface.clone(),
        mac,
        sources: gateway.sources.clone(),
        load_balancers: gateway.load_balancers,
    };
    write(northbound, &rows::Init::Gateway(rows)).await?;
    match uplink {
        Uplink::Bridge(bridge) => {
            switch.make(&Port::patch_pair(bridge, Some(interface)), Some((bridge, mac))).await?;
        }
        Uplink::Nic(nic) => {
            let port = Port {
                bridge: INTEGRATION_BRIDGE.to_owned(),
                name: nic.clone(),
                kind: "",
                iface_id: Some(interface),
                mac: None,
                mtu: None,
                peer: None,
            };
            switch.make(&[port], None).await?;
            host_port::flush(nic).await?;
        }
    }
    Ok(())
}
