//! The world's name server: CoreDNS on the machine `resolver`, which the cluster's own CoreDNS asks
//! for names that are not of the cluster. It knows the machines as `web.example.org` and so on, and
//! a blueprint's further names, with an address's name for each; there are no others.
//!
//! Must not know: who asks.

use std::{
    fmt::Write as _,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::programs;
use crate::{
    Daemon, command, eventually, mounts,
    world::{Machine, World},
};

/// Domain of the machines.
const DOMAIN: &str = "example.org";
/// CoreDNS needs some milliseconds; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A name, and what the name server has for it.
#[derive(Debug, Clone)]
pub struct Name {
    /// Without the last dot.
    pub name: String,
    /// At most one address of a family.
    pub addresses: Vec<IpAddr>,
}

/// Starts the name server with the machines' names and these, and waits until it answers.
pub(super) fn start(world: &World, others: &[Name]) -> Result<Daemon> {
    let directory = Path::new(mounts::LAB).join("name-server");
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let program = unpack(&directory)?;
    let machines = Machine::ALL.map(|machine| Name {
        name: format!("{}.{DOMAIN}", machine.name()),
        addresses: world.addresses(machine),
    });
    let corefile = directory.join("Corefile");
    fs::write(&corefile, configuration(machines.iter().chain(others)))
        .with_context(|| format!("write {}", corefile.display()))?;
    let log = Path::new(mounts::LOGS).join("world/coredns.log");
    let program = move || {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", Machine::Resolver.namespace())).arg("--").arg(&program);
        Ok(command)
    };
    let daemon = Daemon::new(
        "coredns on the resolver",
        log,
        program,
        ["-conf", &corefile.to_string_lossy()],
    );
    daemon.spawn()?;
    let own = world.addresses(Machine::Resolver)[0].to_string();
    eventually("the world's name server answers", PATIENCE, || {
        let mut ask = world.command(Machine::Resolver, "nslookup");
        command::output(ask.args([&format!("web.{DOMAIN}"), &own]))
    })?;
    Ok(daemon)
}

/// Takes the program out of the cluster's own image (`docker save`'s format, of one layer).
fn unpack(directory: &Path) -> Result<PathBuf> {
    let image = programs::dns_image()?;
    let script = r#"tar --extract --to-stdout --file "$1" layer.tar | tar --extract --directory "$2" ./coredns"#;
    let mut shell = Command::new("bash");
    command::output(
        shell.args(["-euo", "pipefail", "-c", script, "bash"]).arg(image).arg(directory),
    )?;
    Ok(directory.join("coredns"))
}

/// A Corefile. The plugin `hosts` answers SERVFAIL for names that it lacks, so these are templates.
fn configuration<'a>(names: impl Iterator<Item = &'a Name> + Clone) -> String {
    let mut text = ".:53 {\n    errors\n    header {\n        set ra\n    }\n".to_owned();
    let mut template = |kind: &str, name: &str, then: &str| {
        let exactly = name.replace('.', "[.]");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "    template IN {kind} . {{\n        match ^{exactly}[.]$\n        {then}\n        fallthrough\n    }}"
        );
    };
    for Name { name, addresses } in names.clone() {
        for address in addresses {
            let kind = if address.is_ipv4() { "A" } else { "AAAA" };
            template(kind, name, &format!(r#"answer "{{{{ .Name }}}} 60 IN {kind} {address}""#));
            template(
                "PTR",
                &reverse(*address),
                &format!(r#"answer "{{{{ .Name }}}} 60 IN PTR {name}.""#),
            );
        }
    }
    // There is the name, and nothing of the kind that is asked for.
    names.for_each(|Name { name, .. }| template("ANY", name, "rcode NOERROR"));
    text + "    template ANY ANY {\n        rcode NXDOMAIN\n    }\n}\n"
}

/// The name under which DNS has the name of an address.
fn reverse(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let digits = format!("{:032x}", address.to_bits());
            digits.chars().rev().fold(String::new(), |name, digit| format!("{name}{digit}."))
                + "ip6.arpa"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_reverse_name() {
        assert_eq!(reverse("8.8.4.1".parse().unwrap()), "1.4.8.8.in-addr.arpa");
        let v6 = "2001:db8::1a".parse().unwrap();
        let zeros = "0.".repeat(22);
        assert_eq!(reverse(v6), format!("a.1.{zeros}8.b.d.0.1.0.0.2.ip6.arpa"));
    }
}
