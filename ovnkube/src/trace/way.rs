//! The way of one packet through OVN, and what it means: delivered, or stopped by which object.
//! Pure; knows no database.

use std::collections::BTreeMap;

use contract::ovn::{EXTERNAL_SWITCH_PREFIX, GATEWAY_ROUTER_PREFIX};

use super::{
    objects::Object,
    steps::{Step, WayEnd},
};
use crate::findings::{Finding, State};

/// The steps of a packet, with the objects that they come from.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) steps: Vec<Step>,
    pub(super) end: WayEnd,
    /// By the index of the step.
    pub(super) objects: BTreeMap<usize, Object>,
}

/// What becomes of the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Delivered(String),
    Stopped(String),
    Unclear(String),
}

/// A pod by its logical port, or a node by that of its own.
pub(super) fn of_port(port: &str) -> String {
    match (port.strip_prefix("k8s-"), port.split_once('_')) {
        (Some(node), _) => format!("node {node}"),
        (None, Some((namespace, pod))) => format!("pod {namespace}/{pod}"),
        (None, None) => format!("port {port}"),
    }
}

impl Way {
    /// `expected`: the logical port that is to take the packet, if one is.
    pub(super) fn verdict(&self, expected: Option<&str>) -> Verdict {
        match &self.end {
            WayEnd::Port(port) if expected.is_none_or(|expected| expected == port) => {
                Verdict::Delivered(format!("delivered to {}", of_port(port)))
            }
            WayEnd::Port(port) => Verdict::Stopped(format!("taken by {} instead", of_port(port))),
            WayEnd::Network(port) => Verdict::Delivered(format!(
                "leaves OVN {}for the physical network by the port {port}",
                self.exit().map(|node| format!("at node {node} ")).unwrap_or_default()
            )),
            WayEnd::Neighbour(index) => self.without_neighbour(*index),
            WayEnd::Dropped(index) => Verdict::Stopped(self.why_dropped(*index)),
            WayEnd::Refused(index) => Verdict::Stopped(self.why_refused(*index)),
            WayEnd::Unknown => {
                Verdict::Unclear("ovn-trace does not say where the packet ends".to_owned())
            }
        }
    }

    /// Gateway routers have neighbours outside of OVN, and learn them. Of all others, OVN knows the
    /// addresses.
    fn without_neighbour(&self, index: usize) -> Verdict {
        let router = self.steps.get(index).map(|step| step.datapath.as_str()).unwrap_or_default();
        match router.starts_with(GATEWAY_ROUTER_PREFIX) {
            true => Verdict::Delivered(format!(
                "leaves OVN for the physical network once {router} has found the neighbour"
            )),
            false => Verdict::Stopped(format!(
                "dropped by router {router}: no port of the destination's switch has the address"
            )),
        }
    }

    /// The node at which the packet leaves for the physical network.
    pub(super) fn exit(&self) -> Option<&str> {
        self.steps.last()?.datapath.strip_prefix(EXTERNAL_SWITCH_PREFIX)
    }

    /// The ACL that decides about a packet that ends in this step.
    pub(super) fn deciding(&self, index: usize) -> Option<(&Step, &Object)> {
        let step = self.steps.get(index)?;
        let is_acl_stage = step.stage.contains("_acl");
        let (at, object) = self.objects.range(..=index).next_back()?;
        let decider = self.steps.get(*at)?;
        let is_same = decider.datapath == step.datapath && decider.is_acl();
        (is_acl_stage && is_same).then_some((decider, object))
    }

    /// Whether an ACL about what its receiver lets in stops the packet.
    pub(super) fn is_kept_out(&self) -> bool {
        let (WayEnd::Dropped(index) | WayEnd::Refused(index)) = self.end else { return false };
        self.deciding(index).is_some_and(|(step, _)| step.stage.starts_with("ls_out_acl"))
    }

    fn why_dropped(&self, index: usize) -> String {
        if let Some((_, object)) = self.deciding(index) {
            return format!("dropped by {}", object.name);
        }
        let Some(step) = self.steps.get(index) else { return "dropped".to_owned() };
        let (stage, datapath) = (&step.stage, &step.datapath);
        let matching = step.flow.as_ref().map(|flow| flow.matching.as_str()).unwrap_or_default();
        match stage.as_str() {
            "ls_in_check_port_sec"
            | "ls_in_apply_port_sec"
            | "ls_in_port_sec_l2"
            | "ls_in_port_sec_ip" => format!(
                "dropped by port security: {} does not have this source address",
                of_port(&step.inport)
            ),
            "ls_out_check_port_sec" | "ls_out_apply_port_sec" => format!(
                "dropped by port security: {} does not have this destination address",
                of_port(&step.outport)
            ),
            "lr_in_ip_routing" => {
                format!("dropped by router {datapath}: no route to the destination")
            }
            stage if stage.starts_with("ls_in_l2") => {
                format!("dropped by switch {datapath}: no port has the destination's MAC address")
            }
            stage => format!("dropped by {datapath}, stage {stage} ({matching})"),
        }
    }

    fn why_refused(&self, index: usize) -> String {
        if let Some((_, object)) = self.deciding(index) {
            return format!("refused by {}", object.name);
        }
        match self.objects.get(&index) {
            Some(object) => format!("refused: {} has no endpoint", object.name),
            None => {
                let step = self.steps.get(index);
                let stage = step.map(|step| step.stage.as_str()).unwrap_or_default();
                format!("refused in stage {stage}")
            }
        }
    }

    /// A finding for each step that decides something.
    pub(super) fn findings(&self, subject: &'static str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let stops = self.end == WayEnd::Dropped(index) || self.end == WayEnd::Refused(index);
            let Some(said) = self.said(index, step, stops) else { continue };
            let state = if stops { State::Failed } else { State::Ok };
            let mut finding = Finding::new(subject, &step.datapath, state, &said);
            finding = finding.with("stage", step.stage.as_str());
            if let Some(flow) = &step.flow {
                finding = finding
                    .with("match", flow.matching.as_str())
                    .with("priority", flow.priority)
                    .with("flow", flow.uuid.as_str());
            }
            if let Some(object) = self.objects.get(&index) {
                finding = finding
                    .with("object", object.name.as_str())
                    .with("action", object.action.as_str());
            }
            findings.push(finding);
            // What follows is about the refusal's own way back.
            if stops {
                break;
            }
        }
        findings
    }

    fn said(&self, index: usize, step: &Step, stops: bool) -> Option<String> {
        let stage = &step.stage;
        if let Some(object) = self.objects.get(&index) {
            let Object { name, action, .. } = object;
            return Some(match action.as_str() {
                "balance" if stops => format!("{name} has no endpoint: refused"),
                "balance" => format!("{name}: sent to an endpoint"),
                "drop" => format!("dropped by {name}"),
                "reject" => format!("refused by {name}"),
                "pass" => format!("left to the next tier by {name}"),
                _ => format!("allowed by {name}"),
            });
        }
        if stops {
            return Some(match self.end {
                WayEnd::Refused(_) => self.why_refused(index),
                _ => self.why_dropped(index),
            });
        }
        let flow = step.flow.as_ref()?;
        match stage.as_str() {
            "lr_in_ip_routing" => Some(format!("route {}", flow.matching)),
            "lr_out_snat" if step.actions.iter().any(|action| action.starts_with("ct_snat")) => {
                let action = step.actions.iter().find(|action| action.starts_with("ct_snat"))?;
                Some(format!("source translated: {action}"))
            }
            _ => {
                let output = step.actions.iter().find(|action| action.contains("output to"))?;
                let is_last = index + 1 == self.steps.len();
                is_last.then(|| output.trim_matches(['/', '*', ' ']).to_owned())
            }
        }
    }
}
