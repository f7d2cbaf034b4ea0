//! The given options that have no effect in this process, and the reasons.
//!
//! If several roles run in one process, an option has an effect if any of them uses it.

use std::collections::BTreeMap;

use super::{
    databases::{NORTHBOUND, SOUTHBOUND, is_opening_forbidden},
    kind, kubernetes,
    problems::Gathered,
    roles::{self, Role},
    settings::{Origin, Settings},
    spec::{Effect, Group, Part, Spec},
    table::{
        self, cluster, control_plane, databases, gateway,
        kubernetes::{CERT_DIR, CERT_DURATION, OVN_EMPTY_LB_EVENTS, POD_MANIFESTS},
        logs, node, open_vswitch,
        roles::NET_CONTROLLER,
    },
};
use server::node::GatewayMode;

use crate::roles::Roles;

/// The effects of the given options.
#[derive(Debug)]
pub(super) struct Effects<'a> {
    settings: &'a Settings,
    /// `None` for a command that ends: it may be given all options of the process that it is about.
    process: Option<ProcessRoles>,
}

/// The roles of a process.
#[derive(Debug)]
struct ProcessRoles {
    /// The options that name them: `--init-node`.
    named: String,
    is_node: bool,
    control_plane: Option<Roles>,
    /// A controller connects to the southbound database.
    has_southbound: bool,
    /// With `--enable-interconnect`.
    is_connected: bool,
    /// Of a node. None without one, and if it cannot be read, which is a problem of its own.
    gateway: Option<GatewayMode>,
}

/// Why an option that is given has no effect, in the order of the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// It is for a part that does not exist yet.
    NotYet(Part),
    /// It is for other roles than these.
    OtherRole(String),
    /// This option takes its place.
    Beside(&'static str),
    /// The port of tunnels is not a setting of the node.
    TunnelPort,
    /// It is about a gateway, and the node has none.
    NoGateway,
    /// It is about a shared gateway, and the node has a local one.
    LocalGateway,
    /// The API server has what it says.
    ApiServer,
    /// It is a file of a database's server, and nothing asks to open that database. The command
    /// that does it.
    ServerFile(&'static str),
    /// The end of a sentence that begins with the option.
    Never(&'static str),
}

/// The roles that use an option.
#[derive(Debug, Clone, Copy)]
enum Users {
    Everyone,
    Node,
    NodeAndController,
    ControlPlane,
    Controller,
    /// A controller that connects to the southbound database: with an address of it, to follow the
    /// events of idled Services, or to write the chassis of other zones.
    Unidling,
    /// The node, and such a controller.
    Southbound,
    Manager,
    /// A cluster manager in a process of its own.
    ManagerAlone,
    /// The node, and a controller of one of several zones.
    NodeAndZones,
    /// `--remove-node`
    Removal,
    /// Reported by [`Reason::ServerFile`] where nobody uses it.
    Opening,
}

/// The options that are not used by the roles of their group.
static EXCEPTIONS: [(&Spec, Users); 52] = [
    (&POD_MANIFESTS, Users::Node),
    (&CERT_DIR, Users::Node),
    (&CERT_DURATION, Users::Node),
    (&logs::CNILOGFILE, Users::Node),
    // The control plane reads `external_ids` there, too.
    (&open_vswitch::OVSDB_ENDPOINT, Users::Everyone),
    (&open_vswitch::OVS_RUN_DIR, Users::Everyone),
    // Of --ovn-metrics-bind-address.
    (&open_vswitch::OVN_RUN_DIR, Users::Everyone),
    (&databases::NB_DB_LOCATION, Users::Everyone),
    (&databases::SB_DB_LOCATION, Users::Everyone),
    (&open_vswitch::INACTIVITY_PROBE, Users::NodeAndController),
    (&open_vswitch::ENCAP_PORT, Users::NodeAndZones),
    (&databases::SB_ADDRESS, Users::NodeAndController),
    (&databases::SB_CLIENT_PRIVKEY, Users::Southbound),
    (&databases::SB_CLIENT_CERT, Users::Southbound),
    (&databases::SB_CLIENT_CACERT, Users::Southbound),
    (&databases::SB_RUN_DIR, Users::Southbound),
    (&databases::SB_CERT_COMMON_NAME, Users::Unidling),
    (&databases::DB_TXN_TIMEOUT, Users::Removal),
    (&cluster::CLUSTER_SUBNETS, Users::Everyone),
    (&cluster::SERVICE_CIDRS, Users::Everyone),
    (&cluster::ZONE, Users::Everyone),
    (&cluster::INTERCONNECT, Users::Everyone),
    (&cluster::DISABLE_REQUESTEDCHASSIS, Users::Controller),
    (&cluster::ACL_RATE_LIMIT, Users::Controller),
    (&cluster::MULTICAST, Users::Controller),
    (&cluster::SVC_TEMPLATE, Users::Controller),
    (&cluster::STATELESS_NETPOL, Users::Controller),
    (&OVN_EMPTY_LB_EVENTS, Users::Controller),
    (&cluster::V4_JOIN_SUBNET, Users::Everyone),
    (&cluster::V6_JOIN_SUBNET, Users::Everyone),
    (&cluster::V4_TRANSIT_SUBNET, Users::Everyone),
    (&cluster::V6_TRANSIT_SUBNET, Users::Everyone),
    (&cluster::V4_MASQUERADE_SUBNET, Users::NodeAndController),
    (&cluster::V6_MASQUERADE_SUBNET, Users::NodeAndController),
    // Of gateway routers.
    (&node::MTU, Users::NodeAndController),
    // Its rows are the controller's.
    (&gateway::SNAT_MULTIPLE_GWS, Users::NodeAndController),
    (&control_plane::APPROVE_NODE_CERTIFICATES, Users::Manager),
    (&control_plane::NODE_BOOTSTRAP_USERS, Users::Manager),
    (&control_plane::LEASE_DURATION, Users::Controller),
    (&control_plane::RENEW_DEADLINE, Users::Controller),
    (&control_plane::RETRY_PERIOD, Users::Controller),
    (&control_plane::MANAGER_LEASE_DURATION, Users::ManagerAlone),
    (&control_plane::MANAGER_RENEW_DEADLINE, Users::ManagerAlone),
    (&control_plane::MANAGER_RETRY_PERIOD, Users::ManagerAlone),
    (&databases::BOOTSTRAP_CA_CERT, Users::Controller),
    (&NET_CONTROLLER, Users::Controller),
    (&databases::NB_SERVER_PRIVKEY, Users::Opening),
    (&databases::NB_SERVER_CERT, Users::Opening),
    (&databases::NB_SERVER_CACERT, Users::Opening),
    (&databases::SB_SERVER_PRIVKEY, Users::Opening),
    (&databases::SB_SERVER_CERT, Users::Opening),
    (&databases::SB_SERVER_CACERT, Users::Opening),
];

impl<'a> Effects<'a> {
    pub(super) fn of(settings: &'a Settings) -> Self {
        Self { settings, process: ProcessRoles::of(settings) }
    }

    /// Why an option has no effect; `None` if it has one, or is not given.
    pub(super) fn reason(&self, spec: &'static Spec) -> Option<Reason> {
        let setting = self.settings.given(spec)?;
        // First the reasons that hold in every role, then those of the roles of this process.
        match spec.effect {
            Effect::Later(part) => return Some(Reason::NotYet(part)),
            Effect::Never(why) => return Some(Reason::Never(why)),
            Effect::Full => {}
        }
        if let Some(process) = self.process.as_ref().filter(|process| !process.uses(spec)) {
            return Some(Reason::OtherRole(process.named.clone()));
        }
        if let Some(reason) =
            self.process.as_ref().and_then(|process| process.reason(self.settings, spec))
        {
            return Some(reason);
        }
        let is_node_alone =
            self.process.as_ref().is_some_and(|process| process.control_plane.is_none());
        if let Some(other) = kubernetes::in_place_of(self.settings, spec, is_node_alone) {
            return Some(Reason::Beside(other.name));
        }
        // The default port is in force without the option, too: only another one is worth a remark.
        // A controller tells OVN of the port of other zones' nodes.
        let tells = self.process.as_ref().is_some_and(|process| {
            process.is_connected && process.control_plane.is_some_and(Roles::has_controller)
        });
        let is_tunnel_port =
            spec.name == open_vswitch::ENCAP_PORT.name && setting.value != spec.default && !tells;
        is_tunnel_port.then_some(Reason::TunnelPort)
    }

    /// A sentence for each reason, with its options. Values that the process merely finds (a pod's
    /// service account, `external_ids`, the defaults in a file of the Python programs) are not
    /// reported.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut names: BTreeMap<Reason, Vec<String>> = BTreeMap::new();
        for spec in table::all() {
            let told = self.settings.given(spec).filter(|setting| {
                setting.insists && setting.origin.rank() < Origin::InCluster.rank()
            });
            if let Some((setting, reason)) =
                told.and_then(|setting| Some((setting, self.reason(spec)?)))
            {
                names.entry(reason).or_default().push(setting.origin.names(spec));
            }
        }
        names.into_iter().flat_map(|(reason, names)| reason.sentences(&names)).collect()
    }
}

impl ProcessRoles {
    fn of(settings: &Settings) -> Option<Self> {
        let (is_node, control_plane) = match roles::asked(settings, &mut Gathered::default())? {
            Role::Node => (true, None),
            Role::ControlPlane(roles) => (false, Some(roles)),
            Role::Beside(roles) => (true, Some(roles)),
            Role::CleanupNode
            | Role::HandBackNode
            | Role::RemoveNode
            | Role::Adopt
            | Role::Explain
            | Role::Status => {
                return None;
            }
        };
        let events = &settings.value(&OVN_EMPTY_LB_EVENTS).value;
        // A value that cannot be read is a problem of its own.
        let unidles = kind::switch(events) == Ok(true);
        let has_address = settings.given(&databases::SB_ADDRESS).is_some();
        let interconnect = &settings.value(&cluster::INTERCONNECT).value;
        let is_connected = kind::switch(interconnect) == Ok(true);
        let has_southbound = control_plane.is_some_and(Roles::has_controller)
            && (unidles || is_connected || has_address);
        let gateway = super::gateway::mode_of(settings);
        Some(Self {
            named: roles::named(settings),
            is_node,
            control_plane,
            has_southbound,
            is_connected,
            gateway,
        })
    }

    /// Why an option has no effect in this process, although one of its roles could use it.
    fn reason(&self, settings: &Settings, spec: &Spec) -> Option<Reason> {
        self.server_file(settings, spec)
            .or_else(|| net_controller(settings, spec))
            .or_else(|| self.reason_on_node(settings, spec))
    }

    fn server_file(&self, settings: &Settings, spec: &Spec) -> Option<Reason> {
        for (side, command) in [(&NORTHBOUND, "ovn-nbctl"), (&SOUTHBOUND, "ovn-sbctl")] {
            if side.server_files.iter().any(|file| file.name == spec.name) {
                let is_used = self.control_plane.is_some_and(Roles::has_controller)
                    && side.opens_by_files(settings);
                return (!is_used).then_some(Reason::ServerFile(command));
            }
        }
        None
    }

    /// Why an option of the node has no effect there. Not if a controller in the same process uses
    /// it.
    fn reason_on_node(&self, settings: &Settings, spec: &Spec) -> Option<Reason> {
        let is_one_of = |specs: &[&Spec]| specs.iter().any(|other| other.name == spec.name);
        let has_controller = self.control_plane.is_some_and(Roles::has_controller);
        if !self.is_node || has_controller && is_one_of(&[&gateway::SNAT_MULTIPLE_GWS]) {
            return None;
        }
        if is_one_of(&[&node::NODE_SUBNETS]) {
            return settings.given(&POD_MANIFESTS).is_none().then_some(Reason::ApiServer);
        }
        let of_gateway = [
            &gateway::INTERFACE,
            &gateway::NEXTHOP,
            &gateway::VLANID,
            &gateway::NODEPORT,
            &gateway::SNAT_MULTIPLE_GWS,
            &gateway::CONNTRACK_ZONE,
            &gateway::MOVE_MANAGED,
        ];
        match self.gateway {
            None => is_one_of(&of_gateway).then_some(Reason::NoGateway),
            // A VLAN is an error there.
            Some(GatewayMode::Local) => {
                is_one_of(&[&gateway::NODEPORT]).then_some(Reason::LocalGateway)
            }
            Some(GatewayMode::Shared) => None,
        }
    }

    fn uses(&self, spec: &Spec) -> bool {
        let is_manager = self.control_plane.is_some_and(Roles::has_cluster_manager);
        let is_controller = self.control_plane.is_some_and(Roles::has_controller);
        match users(spec) {
            Users::Everyone => true,
            Users::Node => self.is_node,
            Users::NodeAndController => self.is_node || is_controller,
            Users::ControlPlane => is_manager || is_controller,
            Users::Controller => is_controller,
            Users::Unidling => self.has_southbound,
            Users::Southbound => self.is_node || self.has_southbound,
            Users::NodeAndZones => self.is_node || is_controller && self.is_connected,
            Users::Manager => is_manager,
            Users::ManagerAlone => is_manager && !is_controller,
            Users::Removal => false,
            Users::Opening => true,
        }
    }
}

/// Why `--net-controller` has no effect in a controller: it opens no database.
fn net_controller(settings: &Settings, spec: &Spec) -> Option<Reason> {
    if spec.name != NET_CONTROLLER.name {
        return None;
    }
    let is_on = kind::switch(&settings.value(&NET_CONTROLLER).value) == Ok(true)
        && !is_opening_forbidden(settings);
    let opens = is_on && [&NORTHBOUND, &SOUTHBOUND].iter().any(|side| side.has_tcp(settings));
    (!opens).then_some(Reason::Never(
        "opens databases that have a tcp: address, and has no other effect since 2019",
    ))
}

fn users(spec: &Spec) -> Users {
    if let Some((_, users)) = EXCEPTIONS.iter().find(|(other, _)| other.name == spec.name) {
        return *users;
    }
    match spec.group {
        Group::Roles | Group::Kubernetes | Group::Logs | Group::Endpoints | Group::Later => {
            Users::Everyone
        }
        Group::Pods | Group::Gateway | Group::Cni | Group::OpenVSwitch => Users::Node,
        Group::Databases => Users::Controller,
        Group::Cluster | Group::ControlPlane => Users::ControlPlane,
    }
}

impl Reason {
    /// For the log. `options`: as they were given.
    fn sentences(&self, options: &[String]) -> Vec<String> {
        let list = options.join(", ");
        match self {
            Self::NotYet(part) => {
                vec![format!("without effect in this version, for {}: {list}", part.name())]
            }
            Self::OtherRole(roles) => vec![format!("without effect with {roles}: {list}")],
            Self::Beside(other) => vec![format!("without effect beside --{other}: {list}")],
            Self::TunnelPort => vec![format!(
                "without effect on this node: {list}; \
                 OVN has the port from options:dst_port of the chassis' Encap row in the southbound database"
            )],
            Self::NoGateway => vec![format!("without effect without a gateway mode: {list}")],
            Self::LocalGateway => vec![format!("without effect in local mode: {list}")],
            Self::ApiServer => vec![format!("without effect beside the API server: {list}")],
            Self::ServerFile(command) => vec![format!(
                "without effect: {list}; a controller opens a database that has an ssl: address and all three files. \
                 Where the database runs: {command} set-ssl PRIVKEY CERT CACERT -- set-connection pssl:PORT"
            )],
            Self::Never(why) => options.iter().map(|option| format!("{option} {why}")).collect(),
        }
    }

    /// For `--print-config`, after the source of the value.
    pub(super) fn mark(&self) -> String {
        match self {
            Self::NotYet(part) => format!("[no effect yet: for {}]", part.name()),
            Self::OtherRole(roles) => format!("[no effect with {roles}]"),
            Self::Beside(other) => format!("[no effect beside --{other}]"),
            Self::TunnelPort => "[no effect: the southbound database has the port]".to_owned(),
            Self::NoGateway => "[no effect without a gateway mode]".to_owned(),
            Self::LocalGateway => "[no effect in local mode]".to_owned(),
            Self::ApiServer => "[no effect beside the API server]".to_owned(),
            Self::ServerFile(_) => {
                "[no effect: needs an ssl: address and all three files]".to_owned()
            }
            Self::Never(_) => "[no effect]".to_owned(),
        }
    }
}
