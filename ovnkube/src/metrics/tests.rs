use super::*;

#[test]
fn logs_have_their_sizes_and_conditions_their_states() {
    let directory = tempfile::tempdir().unwrap();
    let (log, other) = (directory.path().join("ovnkube.log"), directory.path().join("other.log"));
    std::fs::write(&log, "12345").unwrap();
    let page = Page::of_node([log.clone(), other, "/dev/null".into()]).unwrap();
    let conditions = Conditions::default();
    let text = page.text(&conditions).unwrap();
    assert!(
        text.contains("ovnkube_node_logfile_size_bytes{logfile_name=\"ovnkube.log\"} 5\n"),
        "{text}"
    );
    assert!(!text.contains("\"null\"") && !text.contains("\"other.log\""), "{text}");
    std::fs::remove_file(log).unwrap();
    conditions.met(Part::PODS);
    let text = page.text(&conditions).unwrap();
    assert!(!text.contains("ovnkube_node_logfile_size_bytes{"), "{text}");
    assert!(text.contains("ovnkube_node_condition_met{condition=\"pods\"} 1\n"), "{text}");
    assert!(text.contains("ovnkube_node_condition_met{condition=\"open-vswitch\"} 0\n"), "{text}");
}

#[test]
fn two_roles_in_one_process_are_on_one_page_that_tells_of_the_process_once() {
    let page = Page::of_node([]).unwrap().with_control_plane(Roles::Both).unwrap();
    ControlPlaneMetrics::register(Roles::Both, page.registry()).unwrap();
    let text = page.text(&Conditions::of(Part::NODE.into_iter().chain(roles::NEEDS))).unwrap();
    for once in [
        "process_cpu_seconds_total ",
        "ovnkube_node_build_info{",
        "ovnkube_node_condition_met{condition=\"pods\"} 0",
    ] {
        assert_eq!(text.matches(&format!("\n{once}")).count(), 1, "{once}: {text}");
    }
    assert!(
        text.contains("ovnkube_controller_condition_met{condition=\"election\"} 0\n"),
        "{text}"
    );
    assert!(!text.contains("ovnkube_controller_build_info"), "{text}");
}
