//! Differences from a real database: after they are written there are none.

use std::collections::BTreeMap;

use contract::ovn::ObjectId;
use futures_util::FutureExt;
use ovsdb::{Condition, Endpoint, Mutation, Row, Transaction};
use testkit::{Database, Scratch};
use tokio::task::coop::unconstrained;

use crate::{
    engine::{
        commit::assemble,
        diff::part::diff_parts,
        northbound::{Event, connect},
    },
    key::{Part, Scope},
    rows::{
        Acl, DesiredPart, LoadBalancer, Piece, acl,
        load_balancer::{self, Options, WithoutBackend},
    },
};

use super::*;

struct Written {
    northbound: Northbound,
    _server: Database,
    _scratch: Scratch,
}

impl Written {
    /// An empty database. The cluster will own these rows.
    async fn start(rows: &[DesiredRow]) -> Self {
        let scratch = Scratch::new();
        let server = Database::of_schema(scratch.path(), "nb", "/usr/share/ovn/ovn-nb.ovsschema");
        let (_client, updates) =
            connect(Endpoint::Unix(scratch.join("nb.sock")).into(), ovsdb::Options::default());
        let mut northbound = Northbound::new(
            updates,
            rows.iter().map(|row| row.id.clone()),
            &crate::config::ClusterConfig::default(),
        );
        while !matches!(northbound.next().await, Event::Connected) {}
        let mut written = Self { northbound, _server: server, _scratch: scratch };
        written.follow();
        written
    }

    fn follow(&mut self) {
        while unconstrained(self.northbound.next()).now_or_never().is_some() {}
    }

    async fn transact(&mut self, transaction: Transaction) {
        let connection = self.northbound.connection().unwrap().clone();
        connection.transact(transaction).await.unwrap();
        self.follow();
    }

    fn edits(&self, rows: &[DesiredRow]) -> Vec<Edit> {
        let found = diff(&Key::Cluster, rows.to_vec(), &self.northbound, &NoOthers(Kept::NOTHING));
        let Difference { edits, missing, later, taken } = found;
        assert_eq!((missing, later, taken), (Vec::new(), Vec::new(), Vec::new()));
        edits
    }

    /// Writes the differences, and checks that none are left.
    async fn write(&mut self, rows: &[DesiredRow]) {
        let batch =
            assemble(vec![self.edits(rows)], self.northbound.connection().unwrap().schema(), None);
        self.transact(batch.transaction).await;
        assert_eq!(self.edits(rows), []);
    }

    /// The routes of each router.
    fn routes(&self) -> BTreeMap<String, Vec<Uuid>> {
        let router = |name: &str| {
            let row = self.northbound.find(&Table::LogicalRouter.row(name)).unwrap();
            let routes =
                self.northbound.column(Table::LogicalRouter, row, "static_routes").unwrap();
            (name.to_owned(), routes.references().to_vec())
        };
        BTreeMap::from([router("r1"), router("r2")])
    }
}

fn router(name: &str) -> DesiredRow {
    DesiredRow {
        id: Table::LogicalRouter.row(name),
        columns: Vec::new(),
        member_of: Vec::new(),
        or_member_of: Vec::new(),
        or_columns: Vec::new(),
        needs: Vec::new(),
    }
}

fn route(router: &str, prefix: &str) -> DesiredRow {
    let columns = vec![
        ("ip_prefix", Value::Datum(prefix.into())),
        ("nexthop", Value::Datum("100.64.0.2".into())),
    ];
    DesiredRow {
        id: Table::StaticRoute.row_within(router, &columns),
        columns,
        member_of: vec![Membership::of(Table::LogicalRouter.row(router), "static_routes")],
        or_member_of: Vec::new(),
        or_columns: Vec::new(),
        needs: Vec::new(),
    }
}

/// A match is written for few flows. Upstream's words for the same stay, and so does what is
/// written.
#[tokio::test]
async fn a_match_in_upstreams_words_stays() {
    let words = "(ip4.src == $a || ip6.src == $b) && tcp && 80<=tcp.dst<=89 && outport == @g";
    let spelled = "(ip4.src == $a && tcp && 79<tcp.dst<90 && outport == @g) || \
        (ip6.src == $b && tcp && 79<tcp.dst<90 && outport == @g)";
    let group = Table::PortGroup.row("g");
    let acl = Acl {
        id: ObjectId::allow_hairpin("Ingress"),
        of: group.clone(),
        direction: acl::Direction::ToPort,
        tier: acl::Tier::NetworkPolicy,
        priority: 1001,
        matching: words.to_owned(),
        action: acl::Action::Drop,
        log: None,
        needs: Vec::new(),
    };
    let group = DesiredRow { id: group, ..router("") };
    let mut acl = DesiredRow::from(acl);
    // Not in every release.
    acl.columns.retain(|(column, _)| *column != "tier");
    let rows = [group, acl];
    let mut written = Written::start(&rows).await;
    written.write(&rows).await;
    let id = Table::Acl.row(ObjectId::allow_hairpin("Ingress").to_string());
    let row = written.northbound.find(&id).unwrap();
    let matching = written.northbound.column(Table::Acl, row, "match").unwrap();
    assert!(matching.is(&spelled.into()), "{:?}", matching.datum());
    for (other, differs) in [(words, false), ("ip4.src == $a", true)] {
        let mut drift = Transaction::new();
        drift.update("ACL", Condition::equal("action", "drop"), Row::new().with("match", other));
        written.transact(drift).await;
        assert_eq!(!written.edits(&rows).is_empty(), differs, "{other}");
    }
}

/// A route has no name, and two routers have equal ones: each is the row of its own router.
#[tokio::test]
async fn equal_routes_of_two_routers_are_two_rows_and_each_is_repaired_and_removed_alone() {
    let rows = [
        router("r1"),
        router("r2"),
        route("r1", "10.0.0.0/16"),
        route("r2", "10.0.0.0/16"),
        route("r1", "10.1.0.0/16"),
    ];
    let mut written = Written::start(&rows).await;
    written.write(&rows).await;
    let first = written.routes();
    assert_eq!((first["r1"].len(), first["r2"].len()), (2, 1));
    assert!(!first["r1"].contains(&first["r2"][0]), "{first:?}");

    // Another program removes one of the equal routes.
    let mut drift = Transaction::new();
    drift.mutate(
        "Logical_Router",
        Condition::equal("name", "r2"),
        vec![Mutation::delete("static_routes", first["r2"][0])],
    );
    written.transact(drift).await;
    let inserted: Vec<RowName> =
        written.edits(&rows).iter().filter_map(Edit::inserted).cloned().collect();
    assert_eq!(inserted, [rows[3].id.clone()]);
    written.write(&rows).await;
    let second = written.routes();
    assert_eq!(second["r1"], first["r1"]);
    assert_eq!(second["r2"].len(), 1);

    // The equal route of the other router is not desired any more.
    let without = [rows[0].clone(), rows[1].clone(), rows[3].clone(), rows[4].clone()];
    written.write(&without).await;
    let third = written.routes();
    assert_eq!((third["r1"].len(), &third["r2"]), (1, &second["r2"]));

    // Another program changes a route: the row no longer is the desired one, which is inserted
    // again.
    let mut drift = Transaction::new();
    drift.update(
        "Logical_Router_Static_Route",
        third["r2"][0],
        Row::new().with("nexthop", "100.64.0.9"),
    );
    written.transact(drift).await;
    assert_eq!(
        written.edits(&without).iter().filter_map(Edit::inserted).collect::<Vec<_>>(),
        [&rows[3].id]
    );
}

/// A take-over writes nothing. The first change gives the row the form in which no connection
/// hangs.
#[tokio::test]
async fn a_load_balancer_with_affinity_stays_as_upstream_wrote_it_until_it_changes() {
    let balancer = |backends: &str| {
        DesiredRow::from(LoadBalancer {
            service: "shop/cart".parse().unwrap(),
            protocol: load_balancer::Protocol::Tcp,
            part: "cluster".to_owned(),
            vips: [("10.96.0.7:80".into(), backends.to_owned())].into(),
            options: Options {
                without_backend: WithoutBackend::Reject,
                skip_snat: false,
                affinity: Some(600),
                template: None,
                hairpin: ["169.254.169.5", "fd69::5"].map(|text| text.parse().unwrap()),
            },
            on: Vec::new(),
            or_on: Vec::new(),
        })
    };
    let ours = balancer("10.244.1.4:8080,10.244.2.4:8080");
    let mut upstreams = ours.clone();
    let other_form = take(&mut upstreams.or_columns);
    upstreams.columns.retain(|(column, _)| !other_form.iter().any(|(other, _)| other == column));
    upstreams.columns.extend(other_form);
    let mut written = Written::start(std::slice::from_ref(&ours)).await;
    written.write(&[upstreams]).await;
    assert_eq!(written.edits(std::slice::from_ref(&ours)), []);

    written.write(&[balancer("10.244.1.4:8080,10.244.2.4:8080,10.244.3.4:8080")]).await;
    let row = written.northbound.index.named(Table::LoadBalancer, &ours.id.name)[0];
    let column = |name: &str| written.northbound.column(Table::LoadBalancer, row, name).unwrap();
    assert!(column("selection_fields").is(&Datum::set(["ip_src", "ip_dst"])));
    let options = format!("{:?}", column("options").datum());
    assert!(options.contains("reject") && !options.contains("affinity_timeout"), "{options}");
    let lots = format!("{:?}", column("vips").datum()).matches(":8080").count();
    assert_eq!(lots, 256);
}

/// What another program changes in a set of thousands concerns the changed addresses, and not the
/// set.
#[tokio::test]
async fn a_large_set_is_changed_and_repaired_by_its_difference() {
    let set = |last: std::ops::Range<u8>| DesiredRow {
        id: Table::AddressSet.row("a1"),
        columns: vec![(
            "addresses",
            Value::Elements(last.map(|last| format!("10.0.0.{last}").into()).collect()),
        )],
        member_of: Vec::new(),
        or_member_of: Vec::new(),
        or_columns: Vec::new(),
        needs: Vec::new(),
    };
    let mut written = Written::start(&[set(0..1)]).await;
    written.write(&[set(1..100)]).await;
    let edits = written.edits(&[set(2..101)]);
    let [Edit::Elements { remove, add, .. }] = &edits[..] else { panic!("{edits:?}") };
    assert_eq!(
        (&remove[..], &add[..]),
        (&["10.0.0.1".to_owned()][..], &["10.0.0.100".to_owned()][..])
    );
    written.write(&[set(2..101)]).await;

    let mut drift = Transaction::new();
    drift.mutate(
        "Address_Set",
        Condition::equal("name", "a1"),
        vec![Mutation::insert("addresses", "10.0.0.200")],
    );
    let connection = written.northbound.connection().unwrap().clone();
    connection.transact(drift).await.unwrap();
    let Event::Changed(touched) = written.northbound.next().await else { panic!("a change") };
    let address = Part::Address([10, 0, 0, 200].into());
    assert_eq!(touched.keys, HashMap::from([(Key::Cluster, Scope::part(address))]));

    let part = |piece| DesiredPart { row: Table::AddressSet.row("a1"), column: "addresses", piece };
    let parts =
        [part(Piece::NoElement("10.0.0.200".into())), part(Piece::Element("10.0.0.2".into()))];
    let edits = diff_parts(&Key::Cluster, &parts, &written.northbound).unwrap();
    assert_eq!(edits, written.edits(&[set(2..101)]));
    let batch = assemble(vec![edits], connection.schema(), None);
    written.transact(batch.transaction).await;
    assert_eq!(written.edits(&[set(2..101)]), []);
    assert_eq!(diff_parts(&Key::Cluster, &parts, &written.northbound), Some(Vec::new()));
}
