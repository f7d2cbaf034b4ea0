//! Logs: Open vSwitch's layout, one coherent record per call, and no failure of a call because of
//! the log file.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use contract::error::Code;
use serde_json::{Value, json};
use testkit::{Namespace, Node, Pod, eventually, plugin::new_sandbox};

/// The fields of a line in Open vSwitch's layout, `TIMESTAMP|SEQUENCE|MODULE|LEVEL|message`.
struct Line<'a> {
    sequence: u32,
    level: &'a str,
    message: &'a str,
}

#[track_caller]
fn parse(line: &str) -> Line<'_> {
    let parts: Vec<&str> = line.splitn(5, '|').collect();
    let [timestamp, sequence, module, level, message] = parts[..] else {
        panic!("five parts: {line:?}")
    };
    let form: String =
        timestamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(form, "0000-00-00T00:00:00.000Z", "{line:?}");
    assert_eq!(sequence.len(), 5, "{line:?}");
    assert!(
        !module.is_empty() && module.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
        "{line:?}"
    );
    assert!(["EMER", "ERR", "WARN", "INFO", "DBG"].contains(&level), "{line:?}");
    assert!(!message.is_empty() && !message.contains(char::is_control), "{line:?}");
    Line { sequence: sequence.parse().expect(line), level, message }
}

/// A DEL with a changed configuration, on a node with a database.
#[track_caller]
fn del_with(node: &Node, changes: Value) {
    node.call("DEL").conf(&node.conf_with(changes)).run().success();
}

#[test]
fn a_failed_add_is_one_story_that_names_pod_sandbox_and_interface() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database_with_bridge();
    let server = node.start_server();
    server.put(&Pod::cart().network("{"));
    let error = node.add(&namespace).run().error();
    let lines = node.log_lines("log/plugin.log");
    let story: Vec<Line<'_>> = lines.iter().map(|line| parse(line)).collect();
    let subject = format!("[ADD shop/cart-0 sandbox={} eth0] ", &node.sandbox[..12]);
    assert!(story.iter().all(|line| line.message.starts_with(&subject)), "{lines:?}");
    assert_eq!(
        story.iter().map(|line| line.sequence).collect::<Vec<_>>(),
        (1..=u32::try_from(story.len()).unwrap()).collect::<Vec<_>>()
    );
    let last = story.last().unwrap();
    assert_eq!(last.level, "ERR");
    assert!(
        last.message.contains(&format!("code={}", error.code)) && last.message.contains("ms="),
        "{}",
        last.message
    );
    assert!(
        last.message.contains("annotation ") && last.message.contains("shop/cart-0"),
        "{}",
        last.message
    );
    assert_eq!(story.iter().filter(|line| line.level == "ERR").count(), 1, "{lines:?}");
}

#[test]
fn a_del_says_what_it_removed() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    testkit::Port::of(&node.sandbox, "eth0", "ours").put(&database);
    del_with(&node, json!({"logLevel": "info"}));
    let lines = node.log_lines("log/plugin.log");
    assert!(lines.iter().any(|line| parse(line).message.contains("ports=ours")), "{lines:?}");
    assert!(lines.iter().all(|line| parse(line).level == "INFO"), "{lines:?}");
}

#[test]
fn the_servers_story_of_an_add_has_the_wait_and_the_answer() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database_with_bridge();
    let server = node.start_server();
    server.put(&Pod::cart());
    let add = node.add(&namespace).start();
    server.wait_for_line("waiting");
    server.put(&Pod::cart().network(testkit::pod::ANNOTATION));
    add.end().refused(Code::Kernel);
    let subject = format!("[ADD shop/cart-0 sandbox={}", &node.sandbox[..12]);
    let report = server.wait_for_line("the plugin failed");
    assert!(report.contains(&subject) && report.contains("code=103"), "{report}");
    let lines = node.log_lines("log/ovnkube.log");
    let of_the_add: Vec<&str> = lines
        .iter()
        .map(|line| parse(line).message)
        .filter(|message| message.starts_with(&subject))
        .collect();
    let has = |text: &str| of_the_add.iter().any(|message| message.contains(text));
    assert!(has("waiting") && has("answered") && has("addresses=10.244.1.5/24"), "{of_the_add:?}");
}

#[test]
fn a_level_says_how_much_is_written() {
    let count = |level: Value| {
        let node = Node::new();
        let _database = node.start_database_with_bridge();
        del_with(&node, json!({"logLevel": level}));
        node.log_lines("log/plugin.log").len()
    };
    let (err, info, debug) = (count(json!("err")), count(json!("info")), count(json!("dbg")));
    assert!(err == 0 && 0 < info && info < debug, "{err} {info} {debug}");
    assert_eq!([count(json!("4")), count(json!(5)), count(json!("5"))], [info, debug, debug]);
    assert_eq!(count(json!("loud")), info + 1, "a warning that the level is none");
}

#[test]
fn a_missing_directory_is_made() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    del_with(&node, json!({"logFile": node.path("a/b/c.log")}));
    assert!(!node.log_lines("a/b/c.log").is_empty());
}

#[test]
fn a_log_that_cannot_be_written_fails_no_call_and_spoils_no_answer() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    let read_only = node.make_dir("read-only");
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o500)).unwrap();
    let file = node.path("file");
    fs::write(&file, "").unwrap();
    let places = [
        read_only.join("log"),
        file.join("log"),
        node.path("."),
        "/dev/full".into(),
        "/proc/version".into(),
        "".into(),
        "relative/../..".into(),
    ];
    for place in places {
        del_with(&node, json!({"logFile": place}));
        let conf = node.conf_with(json!({"logFile": place}));
        let message = node.call("ADD").conf(&conf).run().refused(Code::InvalidNetns);
        assert!(message.contains("CNI_NETNS") || message.contains("namespace"), "{message}");
    }
    assert!(fs::read(&file).unwrap().is_empty());
}

#[test]
fn a_fifo_that_nobody_reads_blocks_no_call() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    let fifo = node.path("fifo");
    testkit::program::output(testkit::program::command("mkfifo").arg(&fifo));
    let outcome = node.call("DEL").conf(&node.conf_with(json!({"logFile": fifo}))).run();
    outcome.success();
    assert!(outcome.duration < Duration::from_secs(1), "{outcome:?}");
}

#[test]
fn twenty_plugins_at_once_leave_no_torn_line() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    let sandboxes: Vec<String> = (0..20).map(|_| new_sandbox()).collect();
    let calls: Vec<_> =
        sandboxes.iter().map(|id| node.call("DEL").with("CNI_CONTAINERID", id).start()).collect();
    calls.into_iter().for_each(|call| call.end().success());
    let lines = node.log_lines("log/plugin.log");
    let done = lines.iter().filter(|line| parse(line).message.contains("] done")).count();
    assert_eq!(done, 20, "{lines:#?}");
}

#[test]
fn a_log_that_logrotate_renames_is_continued_under_its_name() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    del_with(&node, json!({}));
    let before = node.log_lines("log/plugin.log");
    fs::rename(node.plugin_log(), node.path("log/plugin.log.1")).unwrap();
    del_with(&node, json!({}));
    assert_eq!(node.log_lines("log/plugin.log.1"), before);
    assert!(!node.log_lines("log/plugin.log").is_empty());
}

#[test]
fn the_servers_log_is_continued_under_its_name_while_it_runs() {
    let node = Node::new();
    let server = node.start_server();
    let renamed = node.path("log/ovnkube.log.1");
    fs::rename(&server.log, &renamed).unwrap();
    let report = br#"{"command":"ADD","elapsedTime":0.0021,"hasErr":false}"#;
    let lines = eventually("the server's new log", Duration::from_secs(10), || {
        testkit::http::post(&server.socket, "/metrics", report);
        let lines = node.log_lines("log/ovnkube.log");
        if lines.is_empty() {
            Err(format!("{:?}", node.log_lines("log/ovnkube.log.1")))
        } else {
            Ok(lines)
        }
    });
    for line in lines.iter().chain(&node.log_lines("log/ovnkube.log.1")) {
        parse(line);
    }
}

#[test]
fn the_server_starts_and_answers_without_a_log() {
    let node = Node::new();
    let file = node.path("file");
    fs::write(&file, "").unwrap();
    let server =
        testkit::NodeServer::start_with(&node, &["--logfile", file.join("log").to_str().unwrap()]);
    let (answer, _) = testkit::http::post(
        &server.socket,
        "/metrics",
        br#"{"command":"ADD","elapsedTime":0.0021,"hasErr":false}"#,
    );
    assert_eq!(answer.status(), 200);
    server.stop();
    let complaint = fs::read_to_string(node.path("log/ovnkube.err")).unwrap();
    assert!(complaint.contains(file.to_str().unwrap()), "{complaint}");
}

#[test]
fn a_call_that_is_refused_at_the_door_makes_no_log() {
    let node = Node::new();
    node.call("DEL")
        .conf(&node.conf_with(json!({"type": null})))
        .run()
        .refused(Code::InvalidConfig);
    assert!(!Path::new(&node.plugin_log()).exists());
}
