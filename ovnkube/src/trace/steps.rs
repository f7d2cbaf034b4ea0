//! The output of ovn-trace(8): the logical flows that a packet passes, and where it ends. Reads
//! text; knows neither databases nor Kubernetes.
//!
//! ```text
//! egress(dp="node2", inport="stor-node2", outport="lab_b")
//! --------------------------------------------------------
//!  4. ls_out_acl (northd.c:6445): reg0[7] == 1 && (…), priority 2001, uuid 1b6ca6de
//!     reg0[1] = 1;
//!     next;
//! ```

use contract::ovn::REMOTE_PORT;

/// The most steps that are read. A real way has a hundred; a loop of routers has 64 times that.
const MOST: usize = 4096;

/// A logical flow that the packet has met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// The switch or router.
    pub(super) datapath: String,
    /// The logical port by which the packet has come in.
    pub(super) inport: String,
    /// The one by which it is to leave; empty before that is known.
    pub(super) outport: String,
    pub(super) table: u8,
    /// Such as `ls_out_acl_eval`.
    pub(super) stage: String,
    pub(super) flow: Option<LogicalFlow>,
    /// A line for each.
    pub(super) actions: Vec<String>,
}

/// The flow of a step; a step without one drops the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogicalFlow {
    pub(super) matching: String,
    pub(super) priority: i64,
    /// The first eight hexadecimal digits.
    pub(super) uuid: String,
}

/// Where the packet ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WayEnd {
    /// A logical port takes it.
    Port(String),
    /// It leaves for the physical network by this port.
    Network(String),
    /// The router of the step with this index looks for the Ethernet address of the next machine.
    Neighbour(usize),
    /// It is dropped in the step with this index.
    Dropped(usize),
    /// A refusal goes back to the sender, made in the step with this index.
    Refused(usize),
    /// The output says nothing of it.
    Unknown,
}

/// All steps, in order.
pub(super) fn read(output: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut place = Step::default();
    for line in output.lines() {
        let is_header = line.starts_with("ingress(") || line.starts_with("egress(");
        if is_header {
            let text = |name| quoted(line, name).unwrap_or_default();
            let (datapath, inport) = (text("dp="), text("inport="));
            place = Step { datapath, inport, outport: text("outport="), ..Step::default() };
        } else if let Some((table, stage, flow)) = step(line) {
            if steps.len() == MOST {
                break;
            }
            steps.push(Step { table, stage, flow, ..place.clone() });
        } else if let Some(step) = steps.last_mut() {
            let action = line.trim();
            if !action.is_empty() && !action.starts_with("--") {
                step.actions.push(action.to_owned());
            }
        }
    }
    steps
}

fn quoted(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(name)?;
    let (value, _) = rest.strip_prefix('"')?.split_once('"')?;
    Some(value.to_owned())
}

/// Table, stage and flow of a line such as
/// `12. ls_in_lb (northd.c:7558): ct.new, priority 120, uuid fcc427e5`, or
/// `13. ls_in_x: no match (implicit drop)`.
fn step(line: &str) -> Option<(u8, String, Option<LogicalFlow>)> {
    let (number, rest) = line.trim_start().split_once(". ")?;
    let table = number.parse().ok()?;
    let end = rest.find([' ', ':'])?;
    let (stage, rest) = rest.split_at(end);
    let is_stage = stage.starts_with("ls_") || stage.starts_with("lr_");
    if !is_stage {
        return None;
    }
    // The place in northd's source is not there in each release.
    let (_, text) = rest.split_once(": ")?;
    let flow = text.rsplit_once(", uuid ").and_then(|(text, uuid)| {
        let (matching, priority) = text.rsplit_once(", priority ")?;
        let uuid = uuid.trim().to_owned();
        Some(LogicalFlow { matching: matching.to_owned(), priority: priority.parse().ok()?, uuid })
    });
    Some((table, stage.to_owned(), flow))
}

/// Where the packet ends.
pub(super) fn end(steps: &[Step]) -> WayEnd {
    for (index, step) in steps.iter().enumerate() {
        for action in &step.actions {
            if action.starts_with("reject {") || action.starts_with("tcp_reset") {
                return WayEnd::Refused(index);
            }
            // What follows is about the question to the neighbour.
            if action.starts_with("arp {") || action.starts_with("nd_ns {") {
                return WayEnd::Neighbour(index);
            }
        }
    }
    let outputs = steps.iter().rev().flat_map(|step| step.actions.iter().rev());
    for (port, kind) in outputs.filter_map(|action| output(action)) {
        match kind {
            "" | "vif" | "localport" | "vtep" | "external" | REMOTE_PORT => {
                return WayEnd::Port(port);
            }
            "localnet" => return WayEnd::Network(port),
            // A patch, to the next datapath.
            _ => {}
        }
    }
    let is_drop = |step: &Step| {
        step.flow.is_none() || step.actions.iter().any(|action| action.starts_with("drop;"))
    };
    match steps.iter().rposition(is_drop) {
        Some(index) => WayEnd::Dropped(index),
        // ovn-trace leaves out what the last stage does not say: a check of port security that
        // fails has an empty list of actions.
        None => WayEnd::Unknown,
    }
}

/// The port and its type of `/* output to "lab_b", type "" */`.
fn output(action: &str) -> Option<(String, &str)> {
    let (_, rest) = action.split_once("output to \"")?;
    let (port, rest) = rest.split_once("\", type \"")?;
    let (kind, _) = rest.split_once('"')?;
    Some((port.to_owned(), kind))
}

/// The backends among which the step's load balancer chooses: `10.244.1.3:8080`.
pub(super) fn backends(step: &Step) -> Option<Vec<String>> {
    let mut balancing = step.actions.iter().filter(|action| action.starts_with("ct_lb"));
    let (_, list) = balancing.find_map(|action| action.split_once("backends="))?;
    let list = list.split([')', ';']).next()?;
    Some(list.split(',').map(|backend| backend.trim().to_owned()).collect())
}

impl Step {
    /// Whether the step is the evaluation of an ACL, or its default.
    pub(super) fn is_acl(&self) -> bool {
        let stage = self.stage.as_str();
        let is_other = ["_hint", "_action", "_sample"].iter().any(|end| stage.ends_with(end));
        let is_acl = stage.starts_with("ls_in_acl") || stage.starts_with("ls_out_acl");
        is_acl && !is_other
    }
}
