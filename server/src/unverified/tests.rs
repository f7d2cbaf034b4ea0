use std::{fs, time::Duration};

use kubeapi::{ApiServer, Cluster};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_skips_the_verification_is_remarked_and_one_that_does_not_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    for (extra, expected) in [
        (", insecure-skip-tls-verify: true", true),
        (", insecure-skip-tls-verify: false", false),
        ("", false),
    ] {
        let cluster = format!("server: 'https://127.0.0.1:1'{extra}");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts:\n- {{name: c, context: {{cluster: k, user: u}}}}\n\
             clusters:\n- name: k\n  \
             cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{}}\n"
        );
        fs::write(&path, text).unwrap();
        let conditions = Conditions::default();
        let connection = Connection::open(ApiServer {
            cluster: Cluster::Kubeconfig(path.clone()),
            credential: None,
        });
        let warning =
            tokio::spawn(warn_of_skipped_verification(connection, conditions.clone(), Part::PODS));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let remark = conditions.all_remarks().remove(&Part::PODS);
        assert_eq!(
            remark.is_some_and(|remark| remark.contains("insecure-skip-tls-verify")),
            expected,
            "{extra}"
        );
        warning.abort();
    }
}
