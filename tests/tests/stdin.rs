//! Runtimes that start the plugin and never close its standard input.

use std::{
    fs::File,
    io::{PipeWriter, Write, pipe},
    os::fd::OwnedFd,
    time::Duration,
};

use contract::error::Code;
use testkit::{Node, Plugin, let_pass, plugin::Running};

/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// Starts a call whose standard input has these bytes, and stays open as long as the writer lives.
fn unending(plugin: Plugin<'static>, bytes: &str) -> (Running, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe can be made");
    writer.write_all(bytes.as_bytes()).expect("so much fits into a pipe");
    (plugin.stdin_from(File::from(OwnedFd::from(reader))).start(), writer)
}

#[test]
fn a_call_whose_standard_input_never_ends_hangs_for_ever() {
    let node = Node::new();
    let conf = node.conf().to_string();
    let half = &conf[..conf.len() / 2];
    let calls = [("ADD", 10), ("DEL", 10), ("CHECK", 10), ("GC", 10), ("STATUS", 4)];
    let calls: Vec<_> = calls
        .into_iter()
        .flat_map(|(verb, limit)| ["", half, &conf].map(|bytes| (verb, limit, bytes)))
        .map(|(verb, limit, bytes)| (verb, limit, bytes.len(), unending(Plugin::new(verb), bytes)))
        .collect();
    for (verb, limit, length, (call, _writer)) in calls {
        let outcome = call.end();
        let error = outcome.error();
        assert_eq!(error.code, Code::Io.number(), "{verb}: {error:?}");
        let said = format!(
            "standard input is still open after {limit} s: {length} bytes of a network configuration came"
        );
        assert!(error.msg.contains(&said), "{verb}: {error:?}");
        assert!(error.details.contains("close standard input"), "{verb}: {error:?}");
        let limit = Duration::from_secs(limit);
        assert!(
            outcome.duration >= limit && outcome.duration < limit + SLACK,
            "{verb}: {:?}",
            outcome.duration
        );
    }
}

#[test]
fn what_needs_no_configuration_does_not_wait_for_its_end() {
    for plugin in [Plugin::bare("VERSION"), Plugin::bare("")] {
        let (call, _writer) = unending(plugin, "{");
        let outcome = call.end();
        assert!(outcome.status.success() && outcome.duration < SLACK, "{outcome:?}");
    }
}

#[test]
fn a_call_that_makes_no_sense_is_answered_without_the_end_of_its_configuration() {
    for plugin in [Plugin::bare("ADD"), Plugin::bare("FETCH")] {
        let (call, _writer) = unending(plugin, r#"{"cniVersion":"0.4.0"}"#);
        let outcome = call.end();
        outcome.refused(Code::InvalidEnvironment);
        assert!(outcome.duration < Duration::from_secs(4) + SLACK, "{outcome:?}");
    }
}

/// A slow runtime is not a runtime that hangs.
#[test]
fn a_configuration_that_comes_late_is_waited_for_and_its_time_is_the_calls() {
    let node = Node::new();
    let (call, mut writer) = unending(node.call("ADD"), "");
    let conf = node.conf().to_string();
    let (first, rest) = conf.split_at(conf.len() / 2);
    writer.write_all(first.as_bytes()).unwrap();
    let_pass(Duration::from_secs(1));
    writer.write_all(rest.as_bytes()).unwrap();
    drop(writer);
    let outcome = call.end();
    assert!(outcome.duration >= Duration::from_secs(1), "{outcome:?}");
    // There is no such namespace; the error shows that the configuration was understood.
    outcome.refused(Code::InvalidNetns);
}
