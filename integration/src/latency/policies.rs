//! NetworkPolicies of a server that is connected to all the time: how soon connections follow one
//! that forbids them, and another that allows them again.
//!
//! The server is used for nothing else: it still has those connections whose ends a policy held
//! back, and while it does, another from the same port of the client fails.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{connections::Connections, eventually, peer::Moment};
use ovsdb::{Condition, Datum, Mutation, Row, Transaction, Uuid};
use serde::Serialize;
use serde_json::{Value, json};

use super::site::{PATIENCE, Site};

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
const DENY: &str = "latency-deny";
const ALLOW: &str = "latency-allow";
/// The port group of the floor.
const GROUP: &str = "latency_floor";

/// Both policies, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Verdicts {
    /// From the request that creates a policy until the last connection that it forbids is
    /// established.
    pub(crate) forbidden: f64,
    /// From the request that creates another one until the first connection that it allows is
    /// established.
    pub(crate) allowed: f64,
}

/// Policies of one server.
trait Policies {
    /// Nobody may connect to it.
    fn forbid(&self) -> Result<()>;
    /// The client may, whatever forbids it.
    fn allow(&self) -> Result<()>;
    /// Everybody may.
    fn clear(&self) -> Result<()>;
}

/// No connection is established for so long: none will be. Ten times the longest time measured.
const SILENCE: f64 = 400.0;
/// Far longer than any time that is worth measuring.
const LONGEST: Duration = Duration::from_secs(20);

/// `connections` to `server` are established when this begins, and when it ends.
fn measure(
    policies: &impl Policies,
    connections: &Connections,
    server: SocketAddr,
) -> Result<Verdicts> {
    connections.first_by(server, LONGEST)?;
    let begun = Moment::now();
    policies.forbid()?;
    // A connection that is not answered is reported after a second, and asks this again.
    let last = connections.wait("no connection is established any more", LONGEST, |seen| {
        let last = seen.iter().map(|connection| connection.answered).max()?.max(begun);
        (Moment::now().milliseconds_since(last) > SILENCE).then_some(last)
    })?;
    let forbidden = last.milliseconds_since(begun);

    let begun = Moment::now();
    policies.allow()?;
    let first = connections.wait("a connection is established again", LONGEST, |seen| {
        seen.iter()
            .map(|connection| connection.answered)
            .filter(|answered| *answered >= begun)
            .min()
    })?;
    let allowed = first.milliseconds_since(begun);
    policies.clear()?;
    Ok(Verdicts { forbidden, allowed })
}

impl Site {
    /// Policies of the API server.
    pub(crate) fn policy_round(&self) -> Result<Verdicts> {
        self.verdicts(&Objects(self))
    }

    /// The rows of such policies, written by bare transactions.
    pub(crate) fn bare_policy_round(&self) -> Result<Verdicts> {
        self.verdicts(&BareRows(self))
    }

    fn verdicts(&self, policies: &impl Policies) -> Result<Verdicts> {
        let server = self.guarded_address();
        let connections = self.connections_to(server)?;
        let verdicts = measure(policies, &connections, server)?;
        drop(connections);
        // The next round begins when nothing of this one is left.
        self.cluster.lab.central.sync()?;
        Ok(verdicts)
    }

    /// Creates other policies, each of which lets the server connect to one port of the client, and
    /// waits until the node has their flows.
    pub(crate) fn add_other_policies(&self, count: usize) -> Result<()> {
        let before = self.rows("ACL")?;
        let policies: Vec<Value> = (0..count)
            .map(|number| {
                let from = json!([{"podSelector": {"matchLabels": {"name": "first"}}}]);
                let ports = json!([{"protocol": "TCP", "port": 10_000 + number}]);
                policy(
                    &format!("other-{number}"),
                    "client",
                    &json!([{"from": from, "ports": ports}]),
                )
            })
            .collect();
        self.cluster.api.create_all(POLICIES, &policies)?;
        eventually("every other policy has its rows", PATIENCE, || {
            let now = self.rows("ACL")?;
            ensure!(now >= before + count, "{now} of {}", before + count);
            Ok(())
        })?;
        self.cluster.lab.central.sync()
    }

    /// Deletes them again, and waits until their flows are gone.
    pub(crate) fn delete_other_policies(&self, count: usize) -> Result<()> {
        let before = self.rows("ACL")?;
        // Of all of them: kubectl would send a request for each.
        self.cluster.api.delete(POLICIES)?;
        eventually("no other policy has a row", PATIENCE, || {
            let now = self.rows("ACL")?;
            ensure!(now + count <= before, "{now} of {before} are left");
            Ok(())
        })?;
        self.cluster.lab.central.sync()
    }
}

/// Policies as objects of the API server.
struct Objects<'a>(&'a Site);

impl Objects<'_> {
    fn create(&self, policy: &Value) -> Result<()> {
        self.0.cluster.api.create(POLICIES, policy).map(drop)
    }
}

impl Policies for Objects<'_> {
    fn forbid(&self) -> Result<()> {
        self.create(&policy(DENY, "guarded", &json!([])))
    }

    fn allow(&self) -> Result<()> {
        let from = json!([{"podSelector": {"matchLabels": {"name": "client"}}}]);
        self.create(&policy(ALLOW, "guarded", &json!([{ "from": from }])))
    }

    fn clear(&self) -> Result<()> {
        for name in [DENY, ALLOW] {
            self.0.cluster.api.delete(&format!("{POLICIES}/{name}"))?;
        }
        Ok(())
    }
}

/// A port group with the server's port, without a policy. It has no ids, so that the control plane
/// leaves it alone.
struct BareRows<'a>(&'a Site);

impl BareRows<'_> {
    fn acl(priority: i64, matching: &str, action: &str) -> Row {
        let row = Row::new().with("direction", "to-lport").with("priority", priority);
        row.with("match", format!("outport == @{GROUP} && {matching}")).with("action", action)
    }

    fn port(&self) -> Result<Uuid> {
        let mut transaction = Transaction::new();
        let named = Condition::equal("name", "default_guarded");
        let rows = transaction.select("Logical_Switch_Port", named, &[]);
        let outcome = self.0.transact(transaction)?;
        Ok(outcome.rows(rows).first().context("the server's port is gone")?.uuid())
    }
}

impl Policies for BareRows<'_> {
    fn forbid(&self) -> Result<()> {
        let port = self.port()?;
        let mut transaction = Transaction::new();
        let acl = transaction.insert("ACL", Self::acl(1000, "ip", "drop"));
        let group = Row::new().with("name", GROUP).with("ports", vec![port]).with("acls", &acl);
        transaction.insert("Port_Group", group);
        self.0.transact(transaction).map(drop)
    }

    fn allow(&self) -> Result<()> {
        let mut transaction = Transaction::new();
        let client = format!("ip4.src == {}", self.0.client_address());
        let acl = transaction.insert("ACL", Self::acl(1001, &client, "allow-related"));
        let group = Condition::equal("name", GROUP);
        transaction.mutate("Port_Group", group, vec![Mutation::insert("acls", &acl)]);
        self.0.transact(transaction).map(drop)
    }

    fn clear(&self) -> Result<()> {
        let mut transaction = Transaction::new();
        let group = Condition::equal("name", GROUP);
        // Rows to which none refers go by themselves.
        transaction.update(
            "Port_Group",
            group.clone(),
            Row::new().with("acls", Datum::Set(vec![])),
        );
        transaction.delete("Port_Group", group);
        self.0.transact(transaction).map(drop)
    }
}

/// A policy of what may reach the pods with this label `name`.
fn policy(name: &str, of: &str, ingress: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": name },
        "spec": {
            "podSelector": { "matchLabels": { "name": of } },
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    })
}
