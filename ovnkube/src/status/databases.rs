//! OVN's databases: whether each server answers, which one leads, who is behind; and whether
//! ovn-northd carries the northbound database's ports over.

use std::collections::BTreeSet;

use ovsdb::{Claim, Condition, Connection, Endpoint, LockState, Transaction, Where};
use tokio::time::{sleep, timeout};

use super::{PATIENCE, PAUSE, Reach, answer, chassis};
use crate::{
    control_plane::Database,
    findings::{Finding, State},
    ovn_query::open,
};

pub(crate) use crate::ovn_query::{NORTHBOUND, SOUTHBOUND, rows};

pub(super) const DATABASES: &str = "databases";
/// A follower that many log entries behind the others has lost its cluster or its disk is slow; a
/// few are on their way at any time.
const BEHIND: i64 = 100;

/// What to look at where ovn-northd runs.
const ON_ITS_MACHINE: &str = "ovn-appctl -t ovn-northd status, and systemctl status ovn-central on \
                              the databases' machine";
/// Of several programs, the one that has this lock of the southbound database is active
/// (ovn-northd(8)).
const NORTHD_LOCK: &str = "ovn_northd";

/// A server's description of its database (ovsdb-server(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    endpoint: String,
    /// `standalone`, `clustered` or `relay`.
    model: String,
    is_connected: bool,
    is_leader: bool,
    index: i64,
}

pub(super) async fn findings(
    northbound: &Reach<Database>,
    southbound: &Reach<Database>,
    node: Option<&str>,
) -> Vec<Finding> {
    let (mut north, mut south) = tokio::join!(
        of_database("northbound", NORTHBOUND, northbound),
        of_database("southbound", SOUTHBOUND, southbound)
    );
    let south_has_locks = south.has_locks;
    let mut findings = std::mem::take(&mut north.findings);
    findings.append(&mut south.findings);
    if node.is_none()
        && let (Some(north), Some(south)) = (&north.connection, &south.connection)
    {
        // A program that was just started, or has lost its server, is there within a moment.
        let mut is_idle = south_has_locks && !is_locked(south).await;
        if is_idle {
            sleep(PAUSE).await;
            is_idle = !is_locked(south).await;
        }
        findings.push(if is_idle { no_northd() } else { northd(north, south).await });
    }
    if let Some(south) = &south.connection {
        findings.extend(chassis::findings(south, node).await);
    }
    findings
}

#[derive(Default)]
struct Asked {
    findings: Vec<Finding>,
    /// To the leader, or to any server that answers.
    connection: Option<Connection>,
    /// Whether the connection is to the server where programs take locks.
    has_locks: bool,
}

async fn of_database(name: &'static str, schema: &'static str, reach: &Reach<Database>) -> Asked {
    let only = |state, why: &str| Asked {
        findings: vec![Finding::new(DATABASES, name, state, why)],
        connection: None,
        has_locks: false,
    };
    let database = match reach {
        Reach::Known(database) => database,
        Reach::NotGiven => {
            let option = if name == "northbound" { "--nb-address" } else { "--sb-address" };
            return only(
                State::Skipped,
                &format!("not asked: it is not on this machine, and no {option} is given"),
            );
        }
        Reach::Unusable(why) => return only(State::Unknown, why),
    };
    let options =
        ovsdb::Options { connect_timeout: PATIENCE, leader_only: false, ..database.options() };
    let endpoints: Vec<Endpoint> = database.endpoints.iter().cloned().collect();
    let questions = endpoints.iter().map(|endpoint| member(endpoint, schema, &options));
    let answers = futures_util::future::join_all(questions).await;
    let (mut members, mut silent, mut connection) = (Vec::new(), Vec::new(), None);
    let mut has_locks = false;
    for (endpoint, answer) in endpoints.iter().zip(answers) {
        match answer {
            Ok((member, to)) => {
                if member.is_leader || connection.is_none() {
                    connection = Some(to);
                    has_locks = member.is_leader && member.model != "relay";
                }
                members.push(member);
            }
            Err(why) => silent.push((endpoint.to_string(), why)),
        }
    }
    let findings = vec![verdict(name, schema, &members, &silent)];
    Asked { findings, connection, has_locks }
}

/// The member's description of itself, and a connection to the database.
async fn member(
    endpoint: &Endpoint,
    schema: &'static str,
    options: &ovsdb::Options,
) -> Result<(Member, Connection), String> {
    let server = answer(Connection::open(endpoint, "_Server", options.clone())).await?;
    let mut query = Transaction::new();
    let columns = ["model", "connected", "leader", "index"];
    let selection = query.select("Database", Condition::equal("name", schema), &columns);
    let outcome = answer(server.transact(query)).await?;
    let Some(row) = outcome.rows(selection).first() else {
        return Err(format!("its server has no database {schema}"));
    };
    let member = Member {
        endpoint: endpoint.to_string(),
        model: row.string("model").unwrap_or_default().to_owned(),
        is_connected: row.boolean("connected").unwrap_or_default(),
        is_leader: row.boolean("leader").unwrap_or_default(),
        index: row.integer("index").unwrap_or_default(),
    };
    let connection = answer(Connection::open(endpoint, schema, options.clone())).await?;
    Ok((member, connection))
}

/// A connection to the first server of the database that answers.
pub(crate) async fn connect(
    reach: &Reach<Database>,
    schema: &'static str,
) -> Result<Connection, String> {
    let database = match reach {
        Reach::Known(database) => database,
        Reach::NotGiven => {
            return Err("it is not on this machine, and no option says where".to_owned());
        }
        Reach::Unusable(why) => return Err(why.clone()),
    };
    open(&database.endpoints, schema, database.options()).await
}

/// What the members say together. `silent`: those that do not answer, and why.
fn verdict(name: &str, schema: &str, members: &[Member], silent: &[(String, String)]) -> Finding {
    let all = members.len() + silent.len();
    let silence = silent.iter().map(|(endpoint, why)| {
        // The reason usually begins with the address.
        if why.starts_with(endpoint) { why.clone() } else { format!("{endpoint}: {why}") }
    });
    let silence = silence.collect::<Vec<_>>().join("; ");
    let newest = members.iter().map(|member| member.index).max().unwrap_or_default();
    let leader = members.iter().find(|member| member.is_leader && member.model == "clustered");
    let behind = members
        .iter()
        .filter(|member| newest - member.index > BEHIND)
        .map(|member| member.endpoint.as_str());
    let behind = behind.collect::<Vec<_>>().join(", ");
    let status =
        format!("ovn-appctl -t /var/run/ovn/{} cluster/status {schema}", control_socket(schema));
    let next = |finding: Finding| finding.next(&format!("{status} on its machine"));
    let found = |state, said: &str| Finding::new(DATABASES, name, state, said);
    let finding = match (members, leader) {
        ([], _) => next(found(State::Failed, &format!("does not answer: {silence}"))),
        ([one, ..], _) if one.model != "clustered" && silent.is_empty() => {
            let connected = if one.is_connected { "" } else { ", and not connected to its source" };
            let state = if one.is_connected { State::Ok } else { State::Failed };
            found(state, &format!("{} at {}{connected}", one.model, one.endpoint))
        }
        (_, None) if members.iter().all(|member| member.model == "clustered") => {
            let why = format!(
                "{} of {all} members answer and none of them leads {silence}",
                members.len()
            );
            next(found(State::Failed, why.trim_end()))
        }
        _ if !silent.is_empty() => {
            let why = format!("{} of {all} members answer; {silence}", members.len());
            next(found(State::Warning, &why))
        }
        _ if !behind.is_empty() => {
            let why =
                format!("raft, {all} members; more than {BEHIND} log entries behind: {behind}");
            next(found(State::Warning, &why))
        }
        (_, leader) => {
            let leader = leader.map_or("none", |leader| &leader.endpoint);
            found(State::Ok, &format!("raft, {all} of {all} members, leader {leader}"))
        }
    };
    let facts: Vec<serde_json::Value> = members
        .iter()
        .map(|member| {
            serde_json::json!({
                "endpoint": member.endpoint, "model": member.model,
                "connected": member.is_connected, "leader": member.is_leader,
                "index": member.index,
            })
        })
        .collect();
    finding.with("members", facts).with("silent", silent.len())
}

fn control_socket(schema: &str) -> &'static str {
    if schema == NORTHBOUND { "ovnnb_db.ctl" } else { "ovnsb_db.ctl" }
}

/// Whether a program holds the lock of the active ovn-northd, or does not say so in time.
async fn is_locked(south: &Connection) -> bool {
    let mut lock = south.lock(NORTHD_LOCK, Claim::Queue);
    // In the queue for as long as the answer takes; in a database that nothing translates for, it
    // is held for that long.
    let answered = timeout(PATIENCE, lock.changed()).await.is_ok();
    let is_free = answered && lock.state() == LockState::Held;
    lock.unlock();
    !is_free
}

fn no_northd() -> Finding {
    let why = "none is active at the southbound database: what changes in the northbound one \
               reaches no node, and what runs goes on";
    Finding::new(DATABASES, "ovn-northd", State::Failed, why).next(ON_ITS_MACHINE)
}

/// Whether each port of the northbound database is in the southbound one, where only ovn-northd
/// writes it.
pub(crate) async fn northd(north: &Connection, south: &Connection) -> Finding {
    let found = |state, said: &str| Finding::new(DATABASES, "ovn-northd", state, said);
    let (first, ports) = match missing(north, south).await {
        Ok(found) => found,
        Err(why) => return found(State::Unknown, &why),
    };
    if first.is_empty() {
        return found(
            State::Ok,
            &format!("all {ports} logical ports are in the southbound database"),
        )
        .with("ports", ports);
    }
    // A port that has just been made is on its way.
    sleep(PAUSE).await;
    let still = match missing(north, south).await {
        Ok((again, _)) => again.intersection(&first).cloned().collect::<Vec<String>>(),
        Err(why) => return found(State::Unknown, &why),
    };
    match still.first() {
        None => {
            let soon = PAUSE.as_secs();
            found(State::Ok, &format!("{ports} logical ports; new ones arrive within {soon} s"))
        }
        Some(example) => {
            let why = format!(
                "does not run, or is behind: {} of {ports} logical ports are not in the southbound \
                 database, such as {example}",
                still.len()
            );
            found(State::Failed, &why).next(ON_ITS_MACHINE).with("missing", still.len())
        }
    }
    .with("ports", ports)
}

/// The names of the ports that are missing, and how many ports there are.
async fn missing(
    north: &Connection,
    south: &Connection,
) -> Result<(BTreeSet<String>, usize), String> {
    let logical = names(north, "Logical_Switch_Port", "name").await?;
    let bound = names(south, "Port_Binding", "logical_port").await?;
    Ok((logical.difference(&bound).cloned().collect(), logical.len()))
}

async fn names(
    database: &Connection,
    table: &str,
    column: &str,
) -> Result<BTreeSet<String>, String> {
    let rows = rows(database, table, Where::all(), &[column]).await?;
    Ok(rows.iter().filter_map(|row| row.string(column)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, is_leader: bool, index: i64) -> Member {
        Member {
            endpoint: name.to_owned(),
            model: "clustered".to_owned(),
            is_connected: true,
            is_leader,
            index,
        }
    }

    #[test]
    fn a_cluster_is_well_with_a_leader_and_all_its_members_at_the_same_entry() {
        let silent = [("tcp:c".to_owned(), "no answer within 5 s".to_owned())];
        for (members, silent, state, said) in [
            (
                vec![member("tcp:a", true, 9), member("tcp:b", false, 9)],
                &silent[..0],
                State::Ok,
                "raft, 2 of 2 members, leader tcp:a",
            ),
            (
                vec![member("tcp:a", true, 900), member("tcp:b", false, 9)],
                &silent[..0],
                State::Warning,
                "behind: tcp:b",
            ),
            (
                vec![member("tcp:a", true, 9)],
                &silent,
                State::Warning,
                "1 of 2 members answer; tcp:c: no answer",
            ),
            (vec![member("tcp:a", false, 9)], &silent, State::Failed, "none of them leads"),
            (vec![], &silent, State::Failed, "does not answer: tcp:c: no answer"),
        ] {
            let finding = verdict("northbound", NORTHBOUND, &members, silent);
            assert_eq!(finding.state, state, "{finding:?}");
            assert!(finding.summary.contains(said), "{finding:?}");
            assert_eq!(finding.next.is_some(), state != State::Ok, "{finding:?}");
        }
    }
}
