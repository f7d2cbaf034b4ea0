//! DEL with inputs that are missing, broken or another pod's; and container ids of every form that
//! runtimes may give.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use integration::{
    Invocation, Pod,
    faults::{Site, row},
};
use serde_json::json;

/// Attaches a pod and runs a DEL that `change` alters: it has to succeed and leave nothing.
fn del_succeeds(
    site: &Site<'_>,
    what: &str,
    change: impl FnOnce(Invocation) -> Invocation,
) -> Result<()> {
    let pod = site.new_pod()?;
    let before = site.node.census()?;
    site.add(&pod)?.success()?;
    ensure!(site.node.census()? != before, "ADD has made nothing");
    change(site.node.runtime().call("DEL", Some(&pod)))
        .run()?
        .success()
        .with_context(|| what.to_owned())?;
    before.must_equal(&site.node.census()?).with_context(|| what.to_owned())
}

// --- 38
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_38_del_does_not_care_what_cni_netns_says() {
    row(38).test(|site| {
        let file = "/run/no-namespace";
        fs::write(site.node.path(file), "a regular file")?;
        for netns in [
            "",
            "/var/run/netns/never-was",
            file,
            "/proc/self/ns/net",
            "/proc/self/ns/mnt",
            "/etc",
            "relative",
        ] {
            del_succeeds(site, &format!("CNI_NETNS={netns:?}"), |del| del.env("CNI_NETNS", netns))?;
        }
        del_succeeds(site, "no CNI_NETNS", |del| del.without_env("CNI_NETNS"))?;
        fs::remove_file(site.node.path(file))?;
        Ok(())
    });
}

#[test]
fn row_38_del_after_the_namespace_is_gone_leaves_nothing() {
    row(38).test(|site| {
        let pod = site.attached_pod()?;
        site.node.remove_namespaces(std::slice::from_ref(&pod))?;
        site.del(&pod)?.success()?;
        site.nothing_of(&pod)
    });
}

#[test]
fn row_38_del_with_the_namespace_of_another_pod_leaves_that_pod_alone() {
    row(38).test(|site| {
        let other = site.attached_pod()?;
        let netns = other.netns.clone();
        del_succeeds(site, "CNI_NETNS of another pod", |del| del.env("CNI_NETNS", netns))?;
        site.one_port_of(&other)?;
        site.has_network(&other)
    });
}

// --- 39
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_39_del_succeeds_twice_and_for_a_sandbox_that_was_never_attached() {
    row(39).test(|site| {
        let pod = site.attached_pod()?;
        site.del(&pod)?.success()?;
        site.nothing_of(&pod)?;
        site.del(&pod)?.success()?;
        let unknown = site.new_pod()?;
        let before = site.node.census()?;
        site.del(&unknown)?.success()?;
        before.must_equal(&site.node.census()?)
    });
}

#[test]
fn row_39_del_takes_any_prev_result_and_no_hint_from_it() {
    row(39).test(|site| {
        let other = site.attached_pod()?;
        let of_another_pod = json!({
            "cniVersion": "1.0.0",
            "interfaces": [{"name": other.host_interface()}, {"name": "eth0", "sandbox": other.netns}],
            "ips": [{"address": other.addresses[0], "interface": 1}],
        });
        let wrong = [
            json!(null),
            json!("garbage"),
            json!([1, 2]),
            json!({"interfaces": 7, "ips": [{"address": "nowhere"}]}),
            of_another_pod,
        ];
        for prev_result in wrong {
            let config = site.node.runtime().with("prevResult", prev_result.clone()).config.to_string();
            del_succeeds(site, &format!("prevResult {prev_result}"), |del| del.input(config))?;
        }
        let pod = site.new_pod()?;
        let result = site.add(&pod)?.success()?;
        site.node.runtime().with("prevResult", result).del(&pod)?.success()?;
        site.nothing_of(&pod)?;
        site.one_port_of(&other)?;
        site.has_network(&other)
    });
}

#[test]
fn row_39_del_may_speak_an_older_version_than_add_did() {
    row(39).test(|site| {
        for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
            let config = site.node.runtime().with("cniVersion", json!(version)).config.to_string();
            del_succeeds(site, version, |del| del.input(config))?;
        }
        Ok(())
    });
}

#[test]
fn row_39_del_needs_no_pod_in_cni_args() {
    row(39).test(|site| {
        let wrong = [
            "garbage",
            "K8S_POD_NAME=somebody;K8S_POD_NAMESPACE=else",
            "K8S_POD_NAME=../x;K8S_POD_NAMESPACE=A B",
        ];
        for args in ["", "IgnoreUnknown=1", "K8S_POD_NAMESPACE=lab"].into_iter().chain(wrong) {
            del_succeeds(site, &format!("CNI_ARGS={args:?}"), |del| del.env("CNI_ARGS", args))?;
        }
        del_succeeds(site, "no CNI_ARGS", |del| del.without_env("CNI_ARGS"))
    });
}

// --- 40
// ----------------------------------------------------------------------------------------------------

/// A pod whose sandbox has this id.
fn with_id(site: &Site<'_>, id: &str) -> Result<Pod> {
    let mut pod = site.lab.plan_pod(site.node);
    id.clone_into(&mut pod.sandbox);
    site.lab.add_ports(std::slice::from_ref(&pod))?;
    site.node.write_manifest(&pod)?;
    site.adopt(pod)
}

#[test]
fn row_40_container_ids_of_any_length_and_with_dots_work() {
    row(40).test(|site| {
        let long = "b".repeat(255);
        for id in [
            "a",
            "7",
            "c0ffee",
            "a.b-c_d",
            "0123456789abcd",
            "0123456789.bcde",
            &"d".repeat(64),
            &long,
        ] {
            let pod = with_id(site, id)?;
            let before = site.node.census()?;
            site.add(&pod)?.success().with_context(|| format!("container id {id:?}"))?;
            let census = site.node.census()?;
            let name: String = id.chars().take(15).collect();
            ensure!(
                census.lines_with(&format!("link {name} ")).len() == 1,
                "container id {id:?}: no link {name}:\n{census}"
            );
            ensure!(
                census.lines_with(&format!("sandbox={id} ")).len()
                    + census.lines_with(&format!("sandbox={id}]")).len()
                    == 1,
                "{census}"
            );
            site.has_network(&pod)?;
            site.del(&pod)?.success()?;
            before
                .must_equal(&site.node.census()?)
                .with_context(|| format!("container id {id:?}"))?;
        }
        Ok(())
    });
}

#[test]
fn row_40_a_container_id_that_is_no_name_is_refused_before_anything_happens() {
    row(40).test(|site| {
        let pod = site.new_pod()?;
        let before = site.node.census()?;
        for id in [
            "",
            "../x",
            "a/b",
            ".hidden",
            "-x",
            "_x",
            "a b",
            "a\nb",
            "ä",
            "a;reboot",
            "$(reboot)",
            "a\u{1b}[2J",
        ] {
            for verb in ["ADD", "DEL"] {
                let outcome =
                    site.node.runtime().call(verb, Some(&pod)).env("CNI_CONTAINERID", id).run()?;
                let error = outcome
                    .failure()
                    .with_context(|| format!("{verb} with container id {id:?}"))?;
                ensure!(
                    error.code == 4
                        && (error.msg.contains("container id")
                            || error.msg.contains("CNI_CONTAINERID")),
                    "{verb} with container id {id:?}: {error:?}"
                );
                ensure!(
                    !outcome.stdout.contains('\u{1b}'),
                    "{verb} with container id {id:?} prints control characters"
                );
                before
                    .must_equal(&site.node.census()?)
                    .with_context(|| format!("{verb} with container id {id:?}"))?;
            }
        }
        Ok(())
    });
}
