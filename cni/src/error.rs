//! Failures: the only place that chooses a failure's code, its message and its hint.

use std::{io, time::Duration};

use contract::{
    error::{CniError, Code, chain},
    names::IfName,
    net_conf::NetConfError,
    stage::Stage,
    wire::{PodChange, Rollback},
};
use podnet::{
    bridge::BridgeError, detach::PartialCleanup, installed::NotInstalled, interface_lock::Busy,
    link::LinkError, netns::NetnsError, pod_end::PodEndError, settings::BadSettings,
};

use crate::{
    ask::AskError,
    check::CheckError,
    failpoint,
    gc::GcError,
    invocation::BadCall,
    port::PortError,
    status::Missing,
    stdin::StdinError,
    timeline::{self, DeadlinePassed},
};

/// Why a call, or one stage of it, failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Call(#[from] BadCall),
    #[error(transparent)]
    Stdin(#[from] StdinError),
    #[error("configuration")]
    NetConf(#[from] NetConfError),
    #[error("configuration")]
    Settings(#[from] BadSettings),
    #[error("CNI_ARGS names no pod (K8S_POD_NAMESPACE and K8S_POD_NAME)")]
    NoPod,
    #[error("CNI_NETNS names no namespace")]
    NoNetns,
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error("open a netlink socket")]
    Netlink(#[source] io::Error),
    #[error("nftables: have the host's own stack ignore what {link} receives")]
    Ingress { link: IfName, source: io::Error },
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the node-local server answered nothing")]
    NoAnswer,
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("configure the pod's interface")]
    PodEnd(#[from] PodEndError),
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    #[error(transparent)]
    PodChanged(PodChange),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error("a DEL of this interface arrived")]
    Cancelled,
    #[error(transparent)]
    Deadline(#[from] DeadlinePassed),
    /// The time limit of a call other than ADD has passed.
    #[error("not done within {} s", .0.as_secs())]
    OutOfTime(Duration),
    #[error("print the result")]
    Stdout(#[source] io::Error),
    #[error("something could not be removed")]
    PartialCleanup(#[from] PartialCleanup),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error("remove stale interfaces")]
    Gc(#[from] GcError),
    #[error(transparent)]
    Failpoint(#[from] failpoint::Hit),
    #[error("start the event loop")]
    Runtime(#[source] io::Error),
}

impl From<PortError> for Cause {
    fn from(error: PortError) -> Self {
        match error {
            PortError::Bridge(error) => Self::Bridge(error),
            PortError::Link(error) => Self::Link(error),
            PortError::NotInstalled(error) => Self::NotInstalled(error),
            PortError::Refused(error) => Self::Ask(error),
            PortError::Ingress { link, source } => Self::Ingress { link, source },
        }
    }
}

/// A stage of an ADD that failed.
pub type StageError = timeline::StageError<Cause>;

/// Why an ADD failed, and what its rollback could not remove.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The call was refused before its first stage, or its answer cannot be used. Nothing was
    /// created.
    #[error(transparent)]
    Refused(#[from] Cause),
    /// A stage failed before anything was created.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A stage failed. The rollback has removed everything.
    #[error(transparent)]
    RolledBack(StageError),
    /// A stage failed, and the rollback could not remove everything. DEL will try again.
    #[error("{stage}; and the rollback left something behind")]
    NotRolledBack {
        stage: StageError,
        #[source]
        leftover: PartialCleanup,
    },
}

/// A failed call, ready to be reported.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Cause(#[from] Cause),
    #[error(transparent)]
    Add(#[from] AddError),
    /// STATUS found these things missing, worst first.
    #[error("{}", .0.iter().map(|missing| chain(missing)).collect::<Vec<_>>().join("; "))]
    Status(Vec<Missing>),
}

impl Failure {
    /// The CNI error object. `context` names verb, pod and sandbox; `milliseconds` is how long the
    /// call took.
    pub fn report(&self, context: &str, milliseconds: f64) -> CniError {
        // The server's refusals have hints of their own, which know more than this table.
        let hint = match self.cause() {
            Some(Cause::Ask(AskError::Refused(refused) | AskError::Leaving(refused)))
                if !refused.details.is_empty() =>
            {
                refused.details.clone()
            }
            Some(Cause::Deadline(_)) => hint_of_deadline(self.stage()).to_owned(),
            Some(cause) => cause.hint().to_owned(),
            None => "each part is named above: start or repair it; nothing else has to be done"
                .to_owned(),
        };
        CniError::new(
            self.code(),
            format!("{context}: {} ({milliseconds:.0} ms)", chain(self)),
            hint,
        )
    }

    /// The code of the CNI error.
    pub fn code(&self) -> Code {
        match self {
            // The larger code is the worse one: 51 says that running pods may be affected, too.
            Self::Status(missing) => {
                missing.iter().map(Missing::code).max().unwrap_or(Code::NotAvailable)
            }
            Self::Cause(_) | Self::Add(_) => self.cause().map_or(Code::Internal, Cause::code),
        }
    }

    /// The stage of an ADD that failed, if it failed in one.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Self::Add(
                AddError::Stage(stage)
                | AddError::RolledBack(stage)
                | AddError::NotRolledBack { stage, .. },
            ) => Some(stage.stage),
            Self::Cause(_) | Self::Add(AddError::Refused(_)) | Self::Status(_) => None,
        }
    }

    /// Outcome of the rollback; `None` if there was nothing to roll back.
    pub fn rollback(&self) -> Option<Rollback> {
        match self {
            Self::Add(AddError::RolledBack(_)) => Some(Rollback::Clean),
            Self::Add(AddError::NotRolledBack { .. }) => Some(Rollback::Leftover),
            Self::Cause(_)
            | Self::Add(AddError::Refused(_) | AddError::Stage(_))
            | Self::Status(_) => None,
        }
    }

    fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Cause(cause) | Self::Add(AddError::Refused(cause)) => Some(cause),
            Self::Add(
                AddError::Stage(stage)
                | AddError::RolledBack(stage)
                | AddError::NotRolledBack { stage, .. },
            ) => Some(&stage.source),
            Self::Status(_) => None,
        }
    }
}

impl Cause {
    /// The only table from failures to codes.
    pub fn code(&self) -> Code {
        match self {
            Self::Call(BadCall::VersionForbids { .. }) => Code::IncompatibleVersion,
            Self::Call(
                BadCall::Missing(_) | BadCall::UnknownVerb(_) | BadCall::Name(_) | BadCall::Args(_),
            ) => Code::InvalidEnvironment,
            Self::NoPod | Self::NoNetns => Code::InvalidEnvironment,
            Self::Stdin(StdinError::Read(_) | StdinError::Open { .. }) | Self::Stdout(_) => {
                Code::Io
            }
            Self::Stdin(StdinError::TooLong) => Code::Decode,
            Self::NetConf(error) => error.code(),
            Self::Settings(_) => Code::InvalidConfig,
            Self::Netns(error) | Self::PodEnd(PodEndError::Netns(error)) => netns_code(error),
            Self::Ask(error) => ask_code(error),
            Self::NoAnswer => Code::TryAgain,
            Self::Bridge(error) => bridge_code(error),
            Self::Link(error) | Self::PodEnd(PodEndError::Link(error)) => link_code(error),
            Self::PodEnd(
                PodEndError::Sysctl { .. }
                | PodEndError::Offload(_)
                | PodEndError::Address { .. }
                | PodEndError::Up(_)
                | PodEndError::Route { .. },
            )
            | Self::Netlink(_)
            | Self::Ingress { .. } => Code::Kernel,
            Self::NotInstalled(NotInstalled::Device(_)) => Code::OpenVSwitch,
            Self::NotInstalled(NotInstalled::Removed(_) | NotInstalled::Reassigned { .. }) => {
                Code::Superseded
            }
            Self::Busy(_) => Code::AlreadyAttached,
            Self::Cancelled => Code::UnknownContainer,
            Self::NotInstalled(NotInstalled::Lost(_)) | Self::Deadline(_) | Self::OutOfTime(_) => {
                Code::TryAgain
            }
            Self::PodChanged(PodChange::Deleted | PodChange::Replaced) => Code::UnknownContainer,
            Self::PodChanged(PodChange::AnnotationGone | PodChange::AnnotationChanged) => {
                Code::TryAgain
            }
            Self::PartialCleanup(leftover) => leftover_code(leftover),
            Self::Check(error) => check_code(error),
            Self::Gc(GcError::Look(_)) => Code::TryAgain,
            Self::Gc(GcError::PartialCleanup(_, leftover)) => leftover_code(leftover),
            Self::Failpoint(_) | Self::Runtime(_) => Code::Internal,
        }
    }

    /// Where to look next.
    fn hint(&self) -> &'static str {
        match self.code() {
            Code::InvalidEnvironment => {
                "the caller, as a rule the runtime, has to set the CNI_* variables (SPEC.md)"
            }
            Code::IncompatibleVersion => {
                "change cniVersion in /etc/cni/net.d to a version that both runtime and plugin speak"
            }
            Code::UnsupportedField => {
                "what is asked for is not part of this version: look at the pod's networks, \
                 and at the configuration in /etc/cni/net.d"
            }
            Code::Decode | Code::InvalidConfig => "look at the configuration in /etc/cni/net.d",
            Code::InvalidNetns => {
                "CNI_NETNS must name a live network namespace of the sandbox; see `lsns -t net`"
            }
            Code::UnknownContainer => {
                "nothing to do: the runtime starts a new sandbox if the pod is still wanted"
            }
            Code::TryAgain => self.hint_of_waiting(),
            Code::BadAnnotation => {
                "look at the pod's annotation k8s.ovn.org/pod-networks and at the program that wrote it"
            }
            Code::AlreadyAttached => {
                "the sandbox must be deleted (DEL) before it can be added again"
            }
            Code::NameTaken => {
                "look at `ip -d link` and `ovs-vsctl find Interface` on the node for the owner of the name"
            }
            Code::Kernel if matches!(self, Self::Ingress { .. }) => {
                "on a userspace datapath the kernel needs nftables of family netdev \
                 (CONFIG_NF_TABLES_NETDEV): see `nft list tables` and `dmesg`"
            }
            Code::Kernel => "look at `dmesg` and at what else changes links and routes in this pod",
            Code::OpenVSwitch => {
                "look at `ovs-vsctl show` and /var/log/openvswitch/ovs-vswitchd.log"
            }
            Code::CheckMismatch => {
                "the pod's network was changed after ADD; a new sandbox puts it right"
            }
            Code::Superseded => "nothing to do: a newer sandbox of the pod owns the port",
            Code::Leftover => "call DEL again; look at `ovs-vsctl show` and `ip link` on the node",
            Code::Io if matches!(self, Self::Stdin(StdinError::Open { .. })) => {
                "the caller, as a rule the runtime, has to write the network configuration \
                 and close standard input"
            }
            Code::Io => "the runtime closed its end too early, or a disk is full",
            Code::NotAvailable | Code::NotAvailableLimited => "start or repair what is missing",
            Code::Internal => "this is a defect of the plugin: please report it with its log",
        }
    }

    /// The hint for `TryAgain`: each cause has its own place to look.
    fn hint_of_waiting(&self) -> &'static str {
        match self {
            Self::Ask(_)
            | Self::NoAnswer
            | Self::Check(CheckError::Server(_) | CheckError::UnknownAnswer) => {
                "is ovnkube running on this node? see `systemctl status ovnkube-node` \
                 and /var/log/openvswitch/ovnkube.log"
            }
            Self::Bridge(BridgeError::NoBridge) => {
                "ovn-controller makes br-int: see `systemctl status ovn-controller` and its log"
            }
            Self::Bridge(_)
            | Self::NotInstalled(_)
            | Self::PartialCleanup(_)
            | Self::Gc(_)
            | Self::Check(_)
            | Self::OutOfTime(_) => {
                "is Open vSwitch running? see `systemctl status openvswitch-switch` and `ovs-vsctl show`"
            }
            Self::Netns(_) | Self::PodEnd(PodEndError::Netns(_)) => {
                "no thread could be started: see the limits of processes of the runtime's unit \
                 (TasksMax, LimitNPROC) and of the machine"
            }
            _ => "the runtime will try again",
        }
    }
}

/// Where to look next when no time is left: each stage waits for another program.
fn hint_of_deadline(stage: Option<Stage>) -> &'static str {
    match stage {
        Some(Stage::Annotation) => {
            "ovnkube does not respond: see `systemctl status ovnkube-node` \
             and /var/log/openvswitch/ovnkube.log"
        }
        Some(Stage::Ovsdb | Stage::Port) => {
            "ovsdb-server does not respond, or is not keeping up: \
             see `systemctl status openvswitch-switch` and /var/log/openvswitch/ovsdb-server.log"
        }
        Some(Stage::Ofport) => {
            "ovs-vswitchd does not respond, or is not keeping up: it has set neither ofport nor error; \
             see `systemctl status openvswitch-switch` and /var/log/openvswitch/ovs-vswitchd.log"
        }
        Some(Stage::OvnInstalled) => {
            "ovn-controller does not respond, or is not keeping up, or the logical port is missing \
             (`ovn-nbctl show`), bound elsewhere or of another pod (requested-chassis, iface-id-ver)"
        }
        Some(Stage::Netns | Stage::Veth | Stage::Pod | Stage::Result) | None => {
            "the kernel or the machine is too busy: see `dmesg` and the load"
        }
    }
}

fn ask_code(error: &AskError) -> Code {
    match error {
        AskError::Refused(refused) | AskError::Leaving(refused) => Code::from_number(refused.code),
        AskError::Absent { .. }
        | AskError::Full { .. }
        | AskError::Silent(_)
        | AskError::Broken(_)
        | AskError::Unexpected { .. } => Code::TryAgain,
        AskError::Answer(_) => Code::Decode,
        AskError::PrimaryNetwork => Code::UnsupportedField,
    }
}

fn bridge_code(error: &BridgeError) -> Code {
    match error {
        BridgeError::Connect(_)
        | BridgeError::NoEndpoint
        | BridgeError::Slow(_)
        | BridgeError::NoBridge
        | BridgeError::Raced(_)
        | BridgeError::Lost(_) => Code::TryAgain,
        BridgeError::NameTaken { .. } => Code::NameTaken,
        BridgeError::AttachedTwice { .. } => Code::UnsupportedField,
        BridgeError::AddressTaken { .. } => Code::BadAnnotation,
        BridgeError::Transact(_) | BridgeError::Monitor(_) if error.is_refusal() => {
            Code::OpenVSwitch
        }
        BridgeError::Transact(_) | BridgeError::Monitor(_) => Code::TryAgain,
    }
}

/// Entering a namespace may need a new thread, which clone(2) refuses with EAGAIN if the machine
/// has no room for one at the moment.
fn netns_code(error: &NetnsError) -> Code {
    match error {
        NetnsError::Enter { source, .. } if source.kind() == io::ErrorKind::WouldBlock => {
            Code::TryAgain
        }
        NetnsError::Open { .. }
        | NetnsError::NotANamespace(_)
        | NetnsError::Own(_)
        | NetnsError::Deleted(_)
        | NetnsError::Enter { .. } => Code::InvalidNetns,
    }
}

fn link_code(error: &LinkError) -> Code {
    match error {
        LinkError::HostNameTaken(_) => Code::NameTaken,
        LinkError::PodNameTaken(_) => Code::AlreadyAttached,
        LinkError::NamespaceGone => Code::InvalidNetns,
        LinkError::Vanished(_) => Code::UnknownContainer,
        LinkError::NoMac(_) | LinkError::Create { .. } | LinkError::Kernel { .. } => Code::Kernel,
    }
}

fn check_code(error: &CheckError) -> Code {
    match error {
        CheckError::NoPrevResult | CheckError::NotInResult(_) => Code::InvalidConfig,
        CheckError::PrevResult(_) => Code::Decode,
        CheckError::NoSubject => Code::InvalidEnvironment,
        CheckError::Netns(error) => netns_code(error),
        CheckError::Link(error) => link_code(error),
        CheckError::Netlink { .. } => Code::Kernel,
        // Whatever listens on the socket answers an ADD no better. A server that is being replaced
        // may be there again at the next CHECK.
        CheckError::Server(AskError::Answer(_)) | CheckError::UnknownAnswer => Code::TryAgain,
        CheckError::Server(error) => ask_code(error),
        CheckError::Bridge(error) => bridge_code(error),
        CheckError::Mismatch { .. } => Code::CheckMismatch,
    }
}

fn leftover_code(leftover: &PartialCleanup) -> Code {
    if leftover.is_passing() { Code::TryAgain } else { Code::Leftover }
}
