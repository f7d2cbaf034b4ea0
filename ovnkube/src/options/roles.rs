//! What the command line asks a process to be: one role, several that go together, or a command.

use super::{
    kind,
    problems::Gathered,
    settings::Settings,
    spec::Spec,
    table::{all, databases, kubernetes, roles as table},
};
use crate::roles::Roles;

/// The role or command on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Node,
    ControlPlane(Roles),
    /// A node's server and these roles in one process.
    Beside(Roles),
    CleanupNode,
    HandBackNode,
    RemoveNode,
    Adopt,
    /// `policy explain`, which the options do not name.
    Explain,
    /// `status`, which the options do not name.
    Status,
}

/// The options that the control plane takes from `external_ids`.
static OF_CONTROL_PLANE: [&Spec; 5] = [
    &databases::NB_ADDRESS,
    &kubernetes::API_SERVER,
    &kubernetes::TOKEN,
    &kubernetes::TOKEN_FILE,
    &kubernetes::CA_CERT,
];

static ROLES: [&Spec; 4] = [
    &table::INIT_MASTER,
    &table::INIT_CLUSTER_MANAGER,
    &table::INIT_OVNKUBE_CONTROLLER,
    &table::INIT_NODE,
];
static COMMANDS: [(&Spec, Role); 4] = [
    (&table::ADOPT, Role::Adopt),
    (&table::CLEANUP_NODE, Role::CleanupNode),
    (&table::HAND_BACK_NODE, Role::HandBackNode),
    (&table::REMOVE_NODE, Role::RemoveNode),
];

impl Role {
    /// Whether `external_ids` are read once, before the role starts.
    pub(super) fn reads_once(self) -> bool {
        match self {
            Self::ControlPlane(_)
            | Self::Beside(_)
            | Self::CleanupNode
            | Self::RemoveNode
            | Self::Adopt
            | Self::Explain
            | Self::Status => true,
            Self::Node | Self::HandBackNode => false,
        }
    }

    /// The options that the role takes from `external_ids`. The keys of a node that are for
    /// ovn-controller, such as the interval of its probes, do not count for the control plane
    /// beside it.
    pub(super) fn external_ids(self) -> Vec<&'static Spec> {
        match self {
            Self::Node | Self::CleanupNode | Self::HandBackNode => all().collect(),
            Self::ControlPlane(_) | Self::Beside(_) | Self::Adopt | Self::Explain => {
                OF_CONTROL_PLANE.to_vec()
            }
            Self::RemoveNode | Self::Status => {
                OF_CONTROL_PLANE.into_iter().chain([&databases::SB_ADDRESS]).collect()
            }
        }
    }
}

/// The role or command. `None` if there is none, or if the roles do not go together.
pub(super) fn asked(settings: &Settings, problems: &mut Gathered) -> Option<Role> {
    let is_given = |spec: &&&'static Spec| settings.given(spec).is_some();
    let is_off = |spec: &&'static Spec| {
        spec.name == table::ADOPT.name && kind::switch(&settings.value(spec).value) == Ok(false)
    };
    let commands: Vec<&(&Spec, Role)> =
        COMMANDS.iter().filter(|(spec, _)| is_given(&spec) && !is_off(spec)).collect();
    let roles: Vec<&Spec> = ROLES.iter().filter(is_given).copied().collect();
    let is_all = kind::switch(&settings.value(&table::EVERYTHING).value) == Ok(true);
    if is_all && settings.given(&table::CLEANUP_NODE).is_none() {
        problems.add("--all belongs to --cleanup-node");
    }
    let is_dry = kind::switch(&settings.value(&table::DRY_RUN).value) == Ok(true);
    if is_dry && settings.given(&table::ADOPT).is_none() {
        problems.add("--dry-run belongs to --adopt");
    }
    // A command even if there are roles, too: its own problems are then reported with this one.
    if let [(command, role), others @ ..] = commands.as_slice() {
        if let Some(other) = roles.first().or(others.first().map(|(spec, _)| spec)) {
            problems.add(format!("{} and {}: give one of them", other.flag(), command.flag()));
        }
        return Some(*role);
    }
    same_identity(settings, &roles, problems);
    let has = |spec: &Spec| roles.iter().any(|role| role.name == spec.name);
    // `--init-master` is both halves, whatever else is given.
    let both = has(&table::INIT_MASTER);
    let control_plane = match (
        both || has(&table::INIT_CLUSTER_MANAGER),
        both || has(&table::INIT_OVNKUBE_CONTROLLER),
    ) {
        (true, true) => Some(Roles::Both),
        (true, false) => Some(Roles::ClusterManager),
        (false, true) => Some(Roles::Controller),
        (false, false) => None,
    };
    match (control_plane, has(&table::INIT_NODE)) {
        (Some(Roles::ClusterManager), true) => {
            problems.add(
                "--init-cluster-manager and --init-node: a cluster manager beside a node's server needs \
                 the controller, too: give --init-master instead, or run it as another process",
            );
            None
        }
        (Some(roles), true) => Some(Role::Beside(roles)),
        (Some(roles), false) => Some(Role::ControlPlane(roles)),
        (None, true) => Some(Role::Node),
        (None, false) => {
            problems.add(
                "say what to be: --init-node NODE, with the name of this node, for the pods of a node; \
                 --init-master NODE for the control plane",
            );
            None
        }
    }
}

/// Whether any option says what to be.
pub(super) fn are_given(settings: &Settings) -> bool {
    let commands = COMMANDS.iter().map(|(spec, _)| *spec);
    ROLES.iter().copied().chain(commands).any(|spec| settings.given(spec).is_some())
}

/// The options that name the roles: `--init-master and --init-node`.
pub(super) fn named(settings: &Settings) -> String {
    let given = ROLES.iter().filter(|spec| settings.given(spec).is_some());
    given.map(|spec| spec.flag()).collect::<Vec<_>>().join(" and ")
}

/// Checks that all roles of a process have the name of one machine.
fn same_identity(settings: &Settings, roles: &[&'static Spec], problems: &mut Gathered) {
    let named = |spec: &&'static Spec| {
        settings.given(spec).map(|setting| (setting.value.clone(), setting.names(spec)))
    };
    let mut all = roles.iter().filter_map(named);
    let Some((name, first)) = all.next() else { return };
    for (_, other) in all.filter(|(other, _)| *other != name) {
        problems.add(format!(
            "{first} and {other}: the roles of one process are those of one machine, so give the same name"
        ));
    }
}
