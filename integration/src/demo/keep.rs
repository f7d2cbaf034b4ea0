//! Commands to look around with in a lab that is kept open. Pure.

use integration::{Lab, Pod, central};

use super::line::{Line, Paint};

/// Commands for another terminal.
pub(crate) fn hints(lab: &Lab, pods: &[Pod]) -> Vec<Line> {
    let mut lines = vec![Line::from("  From another terminal, as root, enter a node:")];
    for node in &lab.nodes {
        lines.push(command(
            &format!("nsenter -t $(pgrep -nf 'integration hold {}') -m -n -p bash", node.name),
            "",
        ));
    }
    lines.extend([Line::default(), Line::from("  and there:")]);
    if let (Some(first), Some(last)) = (pods.first(), pods.last()) {
        let netns = first.netns_name();
        lines.push(command(
            &format!("ip netns exec {netns} ping {}", last.address()),
            &format!("{} to {}", first.name, last.name),
        ));
        lines.push(command(&format!("ip netns exec {netns} bash"), "a shell in a pod"));
    }
    lines.extend([
        command("ovs-vsctl show", "the switch"),
        command(&format!("ovn-nbctl --db {} show", central::NORTHBOUND), "the logical network"),
        command("less /var/log/openvswitch/ovn-k8s-cni-overlay.log", "the plugin's log"),
    ]);
    lines
}

fn command(text: &str, meaning: &str) -> Line {
    Line::default().to(4).add(Paint::Strong, text).to(58).add(Paint::Faint, meaning)
}
