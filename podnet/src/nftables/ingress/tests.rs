use super::*;

/// In a network namespace of its own, with the links `eth1` to `eth9`.
fn with_links(body: impl AsyncFnOnce() + Send + 'static) {
    let tried = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace: this test runs as root");
        for number in 1..10 {
            run(&["link", "add", &format!("eth{number}"), "type", "veth"]);
        }
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(body());
    });
    tried.join().unwrap();
}

fn run(words: &[&str]) {
    assert!(std::process::Command::new("ip").args(words).status().expect("ip(8)").success());
}

fn tables() -> String {
    let listed =
        std::process::Command::new("nft").args(["list", "tables"]).output().expect("nft(8)");
    String::from_utf8(listed.stdout).unwrap()
}

fn devices(names: &[&str]) -> Vec<IfName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn the_kernels_stack_ignores_a_nic_until_it_is_told_otherwise() {
    with_links(async || {
        let nic: IfName = "eth7".parse().unwrap();
        assert_eq!(Devices::Uplinks.ignored().await.unwrap(), []);
        assert!(ignore(&nic).await.unwrap());
        assert!(!ignore(&nic).await.unwrap(), "a second time there is nothing to do");
        assert_eq!(Devices::Uplinks.ignored().await.unwrap(), slice::from_ref(&nic));
        assert!(heed(&nic).await.unwrap());
        assert!(!heed(&nic).await.unwrap());
        assert_eq!(Devices::Uplinks.ignored().await.unwrap(), []);
    });
}

#[test]
fn nics_and_ports_are_ignored_and_heeded_apart_and_the_table_goes_with_the_last() {
    with_links(async || {
        let ports = devices(&["eth1", "eth2", "eth3"]);
        Devices::Ports.ignore(&ports).await.unwrap();
        Devices::Ports.ignore(&ports).await.expect("those that are ignored already are no error");
        assert!(ignore(&"eth7".parse().unwrap()).await.unwrap());
        assert_eq!(Devices::Ports.ignored().await.unwrap(), ports);
        assert!(heed(&"eth7".parse().unwrap()).await.unwrap());
        assert_eq!(Devices::Ports.ignored().await.unwrap(), ports, "a NIC takes no port with it");
        Devices::Ports
            .heed(&devices(&["eth1", "eth8"]))
            .await
            .expect("one that is not ignored is no error");
        assert_eq!(Devices::Ports.ignored().await.unwrap(), ports[1..]);
        // With or without its chain, which the kernel removes before 6.16.
        run(&["link", "del", "eth2"]);
        Devices::Ports.heed(&devices(&["eth2"])).await.unwrap();
        assert_eq!(Devices::Ports.ignored().await.unwrap(), ports[2..]);
        Devices::Ports.heed(&devices(&["eth3"])).await.unwrap();
        assert_eq!(tables(), "");
        Devices::Ports.heed(&ports).await.expect("nothing to end is no error");
    });
}

#[test]
fn more_devices_than_a_transaction_takes_are_ignored_and_heeded() {
    with_links(async || {
        let many: Vec<IfName> =
            (0..BATCH + 5).map(|number| format!("many{number}").parse().unwrap()).collect();
        for device in &many {
            run(&["link", "add", device.as_str(), "type", "veth"]);
        }
        Devices::Ports.ignore(&many).await.unwrap();
        assert_eq!(Devices::Ports.ignored().await.unwrap().len(), many.len());
        Devices::Ports.heed(&many).await.unwrap();
        assert_eq!(tables(), "");
    });
}
