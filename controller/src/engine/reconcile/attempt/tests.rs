//! What goes into one transaction, against an empty replica and without a server.

use ovsdb::{Datum, Endpoint, Uuid};
use serde_json::{Value as Json, json};

use crate::{
    config::ClusterConfig,
    engine::{
        diff::{NoOthers, edit::Cell},
        northbound::{Northbound, connect},
        reconcile::taken::Precedence,
    },
    rows::{DesiredRow, Membership, Value},
    world::{Kept, Store},
};

use super::*;

fn port(name: &str, addresses: usize) -> Edit {
    let addresses = Cell::Datum(Datum::set((0..addresses).map(|number| format!("{number:012}"))));
    Edit::Insert { id: Table::LogicalSwitchPort.row(name), columns: vec![("addresses", addresses)] }
}

fn plan(edits: impl IntoIterator<Item = Vec<Edit>>) -> usize {
    let (mut plan, mut edits) = (Plan::default(), edits.into_iter());
    while !plan.is_full() {
        plan.add(
            Item::whole(Key::Cluster, Cause::Store),
            edits.next().expect("the plan is full before"),
        );
    }
    plan.items.len()
}

/// A thousand ports are within the limit of bytes, and rows of a megabyte are not collected.
#[test]
fn a_transaction_ends_with_its_thousandth_row_or_its_first_megabyte() {
    let ports =
        |size: usize| (0..).map(move |number| vec![port(&format!("ns_pod-{number}"), size)]);
    assert_eq!(plan(ports(2)), MOST_ROWS);
    let large = plan(ports(1000));
    assert!((50..100).contains(&large), "{large}");
    assert_eq!(plan([vec![port("huge", 100_000)]]), 1, "a key is never split");
}

/// The estimate decides only when to stop, so it may be wrong by half.
#[test]
fn the_size_of_an_edit_is_about_that_of_its_operation() {
    let row = Existing { table: Table::LogicalSwitch, row: Uuid::from_u128(7) };
    let texts = || (0..50).map(|number| format!("10.244.{number}.1")).collect::<Vec<_>>();
    let pairs = || texts().into_iter().map(|text| (text.clone(), text)).collect::<BTreeMap<_, _>>();
    let mutate = |mutations: Json| {
        let row = json!([["_uuid", "==", ["uuid", Uuid::from_u128(7).to_string()]]]);
        json!({"op": "mutate", "table": "Logical_Switch", "where": row, "mutations": mutations})
    };
    let addresses = Datum::set((0..100).map(|number| format!("{number:012}")));
    for (edit, operation) in [
        (
            port("ns_pod", 100),
            json!({"op": "insert", "table": "Logical_Switch_Port", "uuid-name": "row12",
                "row": {"addresses": addresses}}),
        ),
        (
            Edit::Elements { row, column: "addresses", remove: texts(), add: texts() },
            mutate(json!([
                ["addresses", "delete", Datum::set(texts())],
                ["addresses", "insert", Datum::set(texts())]
            ])),
        ),
        (
            Edit::Pairs { row, column: "options", remove: texts(), add: pairs() },
            mutate(json!([
                ["options", "delete", Datum::set(texts())],
                ["options", "insert", Datum::map(pairs())]
            ])),
        ),
        (
            Edit::Unlink { of: row, column: "ports", element: Uuid::from_u128(9) },
            mutate(json!([["ports", "delete", Datum::set([Uuid::from_u128(9)])]])),
        ),
    ] {
        let (size, written) = (edit.size(), operation.to_string().len());
        assert!((written / 2..written * 2).contains(&size), "{size} {written} {operation}");
    }
}

fn empty() -> Northbound {
    let nowhere = ::testkit::Scratch::new().join("nb.sock");
    let (_client, updates) = connect(Endpoint::Unix(nowhere).into(), ovsdb::Options::default());
    Northbound::new(updates, [], &ClusterConfig::default())
}

/// An ACL that names a set which does not exist drops everything that it should allow.
#[tokio::test]
async fn a_row_waits_for_those_that_its_texts_name_or_goes_with_them() {
    let (switch, set) = (Table::LogicalSwitch.row("n1"), Table::AddressSet.row("a1"));
    let acl = DesiredRow {
        id: Table::Acl.row("allow"),
        columns: vec![("match", Value::Datum("ip4.src == $a1".into()))],
        member_of: vec![Membership::of(switch.clone(), "acls")],
        or_member_of: Vec::new(),
        or_columns: Vec::new(),
        needs: vec![set.clone()],
    };
    let northbound = empty();
    let difference = |inserted: &[&RowName]| {
        let inserted = inserted.iter().map(|row| (row.called(), (*row).clone())).collect();
        let (store, precedence) = (Store::new(ClusterConfig::default()), Precedence::default());
        let others = OtherKeys { store: &store, precedence: &precedence, inserted: &inserted };
        diff(&Key::Cluster, vec![acl.clone()], &northbound, &others)
    };
    let waits = |missing| Difference { missing, ..Difference::default() };
    assert_eq!(difference(&[&switch]), waits(vec![set.clone()]));
    assert_eq!(difference(&[]), waits(vec![set.clone(), switch.clone()]));
    let edits = difference(&[&switch, &set]).edits;
    assert_eq!(edits.iter().filter_map(Edit::inserted).collect::<Vec<_>>(), [&acl.id]);
}

/// A large value goes out in full with its row, and later by its differences.
#[tokio::test]
async fn a_new_set_is_inserted_with_all_of_its_elements() {
    let set = DesiredRow {
        id: Table::AddressSet.row("a1"),
        columns: vec![(
            "addresses",
            Value::Elements(["10.0.0.1".into(), "10.0.0.2".into()].into()),
        )],
        member_of: Vec::new(),
        or_member_of: Vec::new(),
        or_columns: Vec::new(),
        needs: Vec::new(),
    };
    let northbound = empty();
    let edits = diff(&Key::Cluster, vec![set], &northbound, &NoOthers(Kept::NOTHING)).edits;
    let addresses = Cell::Datum(Datum::set(["10.0.0.1", "10.0.0.2"]));
    let name = Cell::Datum("a1".into());
    let id = Table::AddressSet.row("a1");
    assert_eq!(
        edits,
        [Edit::Insert { id, columns: vec![("addresses", addresses), ("name", name)] }]
    );
}

/// The histogram of how long a change takes was anybody's to spoil.
#[test]
fn a_change_of_endpoints_that_a_user_dates_to_1970_or_the_future_is_not_measured() {
    let now = Duration::from_secs(1_000_000);
    let micros = |seconds: i64| seconds * 1_000_000;
    assert_eq!(since(micros(999_998), now), Some(Duration::from_secs(2)));
    for trigger in [0, -1, i64::MIN, micros(999_000), micros(1_000_001), i64::MAX] {
        assert_eq!(since(trigger, now), None, "{trigger}");
    }
}
