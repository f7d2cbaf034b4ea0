//! The commands of the guides in `docs/how-to` are ones that there are: their programs, packages,
//! units, goals of make and options. What they do, the lab's tests try
//! (`integration/tests/lab/real_machines.rs`, `integration/tests/lab/cluster`).

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Output},
};

use testkit::{Scratch, executable, program};

const GUIDES: &str = "docs/how-to";

/// Programs of others, whose options nobody checks here: a cluster's, and those that look at a
/// result.
const OF_OTHERS: [&str; 9] =
    ["kubectl", "helm", "docker", "podman", "ctr", "curl", "journalctl", "oc", "sed"];
/// Programs of Open vSwitch and OVN, which the tests' prerequisites install.
const OF_OVN: [&str; 7] = [
    "ovs-vsctl",
    "ovs-ofctl",
    "ovn-nbctl",
    "ovn-sbctl",
    "ovs-appctl",
    "ovn-appctl",
    "ovsdb-client",
];

fn page(name: &str) -> String {
    fs::read_to_string(executable::workspace().join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn guides() -> Vec<(String, String)> {
    let directory = executable::workspace().join(GUIDES);
    let names = fs::read_dir(directory)
        .expect("there are guides")
        .map(|entry| entry.expect("it is read").file_name());
    let paths = names.map(|name| format!("{GUIDES}/{}", name.to_str().expect("a name in ASCII")));
    let mut guides: Vec<_> = paths.map(|path| (path.clone(), page(&path))).collect();
    guides.sort();
    guides
}

/// The commands of a page: the lines of its blocks of shell, without comments, with what `\`
/// continues.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let (mut inside, mut begun) = (false, String::new());
    for line in text.lines().map(str::trim) {
        if let Some(language) = line.strip_prefix("```") {
            inside = language == "sh";
            continue;
        }
        let command = line.split("  #").next().unwrap_or_default().trim();
        if !inside || command.is_empty() || command.starts_with('#') {
            continue;
        }
        match command.strip_suffix('\\') {
            Some(part) => begun += part,
            None => commands.push(std::mem::take(&mut begun) + command),
        }
    }
    commands
}

/// A directory with the files that command lines name by a word in capitals.
struct Files(Scratch);

impl Files {
    fn new() -> Self {
        let files = Self(Scratch::new());
        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
            clusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'}}]\n\
            contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n";
        let write = |name: &str, text: &str| {
            fs::write(files.0.join(name), text).expect("the directory is ours")
        };
        write("KUBECONFIG", kubeconfig);
        write("CACERT", "");
        write("empty.conf", "");
        // The first configuration of the guide, whose files an administrator has.
        let guide = page("docs/how-to/real-machines.md");
        let (_, text) = guide.split_once("```ini\n").expect("a configuration");
        let (text, _) = text.split_once("```").expect("its end");
        let cacert = files.0.join("CACERT").display().to_string();
        write("guide.conf", &text.replace("/etc/kubernetes/pki/ca.crt", &cacert));
        files
    }

    /// What the words are on this machine.
    fn fill(&self, word: &str) -> String {
        match word {
            "KUBECONFIG" | "CACERT" => self.0.join(word).display().to_string(),
            // An administrator's.
            "/etc/kubernetes/admin.conf" | "/etc/ovn-kubernetes/kubeconfig" => {
                self.fill("KUBECONFIG")
            }
            word => word.to_owned(),
        }
    }

    /// `ovnkube` with these options, as far as it would accept them.
    fn try_options(&self, conf: &str, words: &[&str]) -> Output {
        let mut command = Command::new(executable::path(executable::SERVER));
        command.env_clear().args(words.iter().map(|word| self.fill(word)));
        // Neither the file nor Open vSwitch of this machine count.
        command.arg("--config-file").arg(self.0.join(conf));
        command.arg(format!("--ovsdb-endpoint=unix:{}", self.0.join("none.sock").display()));
        command.arg("--print-config").output().expect("ovnkube starts")
    }
}

/// What a program wrote.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

fn has_unit(name: &str) -> bool {
    let own = executable::workspace().join(format!("conf/{name}.service"));
    let packaged = Path::new("/lib/systemd/system").join(format!("{name}.service"));
    own.exists() || packaged.exists()
}

fn has_goal(name: &str) -> bool {
    page("Makefile")
        .lines()
        .any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))
}

/// Why there is no such command, or `None`.
fn defect(files: &Files, command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (program, rest) = words.split_first().expect("a command has words");
    match *program {
        "apt-get" | "apt" => rest[1..].iter().find_map(|package| defect_of_package(package)),
        "systemctl" => {
            let verbs =
                ["enable", "disable", "start", "stop", "restart", "status", "is-active", "reload"];
            let mut units = rest.iter().skip(1).filter(|word| !word.starts_with('-'));
            let lacks = units.find(|unit| !has_unit(unit));
            (!verbs.contains(&rest[0]) || lacks.is_some())
                .then(|| format!("there is no unit {lacks:?}"))
        }
        "make" => {
            let goals = rest.iter().filter(|word| !word.contains('='));
            goals
                .into_iter()
                .find(|goal| !has_goal(goal))
                .map(|goal| format!("the Makefile has no {goal}"))
        }
        "ovnkube" if rest[0].starts_with('-') => {
            let output = files.try_options("guide.conf", rest);
            (!output.status.success()).then(|| said(&output))
        }
        "ovnkube" => {
            let mut help = Command::new(executable::path(executable::SERVER));
            let output = help.arg(rest[0]).arg("--help").output().expect("ovnkube starts");
            // For a word that is no command, it is the help of all options.
            let said = said(&output);
            (!said.contains(&format!("ovnkube {}", rest[0]))).then_some(said)
        }
        "ovn-k8s-overlay" | "ovn-k8s-util" | "ovn-k8s-gateway-helper" | "ovn-k8s-watcher" => {
            let has_commands = !rest[0].starts_with('-');
            let mut help = Command::new(executable::path(executable::SERVER));
            help.arg0(program).args(rest.iter().take(has_commands.into())).arg("--help");
            let said = said(&help.output().expect("ovnkube starts"));
            let usage = format!(
                "Usage: {program}{}",
                if has_commands { format!(" {}", rest[0]) } else { String::new() }
            );
            // Each option of the line is in the help.
            let unknown = rest.iter().filter_map(|word| word.strip_prefix("--")).find(|word| {
                !said.contains(&format!("--{}", word.split('=').next().unwrap_or_default()))
            });
            (!said.contains(&usage) || unknown.is_some()).then_some(said)
        }
        name if OF_OVN.contains(&name) => {
            // It panics, with the package to install, if there is none.
            let _there = program::command(name);
            None
        }
        name if OF_OTHERS.contains(&name) => None,
        name => Some(format!("nothing checks {name}")),
    }
}

fn defect_of_package(name: &str) -> Option<String> {
    if let Some(file) = name.strip_prefix("./") {
        let own = file.split('/').next_back().unwrap_or_default().starts_with("ovn-kubernetes_");
        return (!own).then(|| format!("`make packages` makes no {file}"));
    }
    if name == "ovn-kubernetes" {
        return None;
    }
    // Those of the tests' own prerequisites: another name was never installed.
    let known = program::output(
        program::command("dpkg-query").args(["--show", "--showformat=${Package}\\n"]),
    );
    (!known.lines().any(|package| package == name)).then(|| format!("no package {name} was tried"))
}

#[test]
fn every_command_of_a_guide_is_one_that_there_is() {
    let files = Files::new();
    for (name, text) in guides() {
        let commands = commands(&text);
        assert!(commands.len() > 3, "{name}: {commands:?}");
        for command in commands {
            assert_eq!(defect(&files, &command), None, "{name}: {command}");
        }
    }
}

#[test]
fn a_command_that_there_is_not_is_found() {
    let files = Files::new();
    for command in [
        "apt-get install openvswitch-switch ovn-hosts",
        "systemctl enable --now ovnkube-nodes",
        "make packets",
        "ovnkube --init-node n --k8s-apiserver https://a --no-such-option",
        "ovnkube nic-to-bridge eth0",
        "reboot",
    ] {
        assert!(defect(&files, command).is_some(), "{command}");
    }
    let text = "```sh\na b \\\n  c            # d\n# e\n```\n```ini\nf\n```\n";
    assert_eq!(commands(text), ["a b c"]);
}

/// The rows of the table of older documents' command lines: the commands and the word beside them.
fn old_command_lines() -> Vec<(Vec<String>, String)> {
    let page = page("docs/how-to/real-machines.md");
    let (_, table) = page.split_once("## Command lines of other documents").expect("the section");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let commands = cells[0].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (commands, cells[1].to_owned())
    };
    rows.map(row).collect()
}

#[test]
fn command_lines_of_older_documents_do_what_the_page_says() {
    let files = Files::new();
    let rows = old_command_lines();
    assert!(rows.len() > 20, "{rows:?}");
    let installed = page("Makefile");
    for (commands, here) in rows {
        for command in commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            let name = words[0].rsplit('/').next().unwrap_or_default();
            match (here.as_str(), name) {
                ("works" | "ignored", "ovnkube") => {
                    let output = files.try_options("empty.conf", &words[1..]);
                    assert!(output.status.success(), "{command}: {}", said(&output));
                    if here == "ignored" {
                        let config = String::from_utf8_lossy(&output.stdout);
                        let ignored =
                            config.lines().find(|line| line.trim_start().starts_with("ovn-mode"));
                        assert!(
                            ignored.is_some_and(|line| line.contains("[no effect]")),
                            "{config}"
                        );
                    }
                }
                ("works", "make") => {
                    assert!(words.get(1).is_none_or(|goal| has_goal(goal)), "{command}");
                }
                (
                    "works",
                    "ovn-k8s-util"
                    | "ovn-k8s-overlay"
                    | "ovn-k8s-gateway-helper"
                    | "ovn-k8s-watcher",
                ) => assert!(installed.contains(name), "{command}"),
                ("works", name) if OF_OVN.contains(&name) => drop(program::command(name)),
                ("works", _) => {}
                ("package", "ovn-ctl") => {
                    let unit = if command.contains("northd") { "ovn-central" } else { "ovn-host" };
                    assert!(
                        has_unit(unit) && Path::new("/usr/share/ovn/scripts/ovn-ctl").exists(),
                        "{command}"
                    );
                }
                ("package", "ovs-ctl") => assert!(has_unit("openvswitch-switch"), "{command}"),
                ("missing", "make") => assert!(!has_goal(words[1]), "{command}"),
                ("missing", name) => assert!(!installed.contains(name), "{command} is installed"),
                (here, _) => panic!("{command}: {here} is no word of the page"),
            }
        }
    }
}

#[test]
fn the_goals_of_make_are_also_where_older_documents_have_them() {
    for (goal, does) in
        [("all", "cargo build"), ("install", "/usr/bin/ovnkube"), ("clean", "rm -rf")]
    {
        let mut make = Command::new("make");
        make.args(["--dry-run", "--no-print-directory", goal]);
        let printed =
            program::output(make.current_dir(executable::workspace().join("go-controller")));
        assert!(printed.contains(does), "{goal}: {printed}");
    }
}

/// The commands in the last column of the table of upstream's issues.
#[test]
fn every_issue_of_upstream_has_a_command_that_shows_it() {
    let page = page("docs/explanation/upstream-issues.md");
    let rows: Vec<&str> =
        page.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---")).collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in &rows[1..] {
        let command = row.trim_end_matches('|').trim().rsplit("| ").next().unwrap_or_default();
        let words: Vec<&str> = command.trim_matches('`').split_whitespace().collect();
        let defect = match words[..] {
            ["make", goal, ..] => (!has_goal(goal)).then(|| format!("the Makefile has no {goal}")),
            ["cargo", "nextest", "run", "-p", package, "-E", test] => {
                let name = test.trim_start_matches("'test(").trim_end_matches(")'");
                (!has_test(package, name)).then(|| format!("{package} has no test {name}"))
            }
            ["cargo", "nextest", "run", "-p", "integration", module] => {
                let file = format!("integration/tests/lab/{}.rs", module.trim_end_matches("::"));
                let exists = executable::workspace().join(&file).exists();
                (!exists).then(|| format!("there is no {file}"))
            }
            _ => Some("it is no command that is checked".to_owned()),
        };
        assert_eq!(defect, None, "{row}");
    }
}

/// Whether a function of this name is a test of the package: the line before it, or the one before
/// that, says so.
fn has_test(package: &str, name: &str) -> bool {
    let arguments =
        ["grep", "--no-index", "--fixed-strings", "-B3", &format!("fn {name}("), "--", package];
    let mut git = Command::new("git");
    let output =
        git.args(arguments).current_dir(executable::workspace()).output().expect("git runs");
    let found = String::from_utf8_lossy(&output.stdout);
    found.contains("#[test]") || found.contains("#[tokio::test")
}
