//! GC by a runtime without `cni.dev/valid-attachments`. For all other cases see rows 55 and 56 of
//! the fault matrix.

use integration::{Lab, Pod};
use serde_json::json;

use crate::support::attached::{attach, detach};

#[test]
fn without_a_list_nothing_goes() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod: Pod = lab.new_pod(node)?;
        attach(node, pod.clone())?;
        let before = node.census()?;
        let outcome = node.runtime().with("cniVersion", json!("1.1.0")).call("GC", None).run()?;
        outcome.success()?;
        before.must_equal(&node.census()?)?;
        detach(node, &pod)
    });
}
