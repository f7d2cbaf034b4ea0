//! A container runtime: calls the plugin as containerd and CRI-O do, or through `cnitool`.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    Node, Outcome, Pod,
    answer::{Answer, Answers},
    command, executable, mounts,
};

/// The part of a node that calls the plugin.
#[derive(Debug, Clone)]
pub struct Runtime<'node> {
    node: &'node Node,
    /// Called instead of the node's plugin, by a caller that is in the node's namespaces
    /// ([`Node::inside`]).
    pub program: Option<PathBuf>,
    /// Configuration on standard input; the default is `cniVersion` 1.0.0, `name` `ovn-kubernetes`
    /// and the `type`.
    pub config: Value,
    /// `CNI_IFNAME`.
    pub ifname: String,
}

impl Node {
    /// A container runtime of this node.
    pub fn runtime(&self) -> Runtime<'_> {
        let config =
            json!({"cniVersion": "1.0.0", "name": "ovn-kubernetes", "type": executable::PLUGIN});
        Runtime { node: self, program: None, config, ifname: "eth0".to_owned() }
    }

    /// A runtime with the configuration that the node's server wrote: the plugin's part of the
    /// list, with the keys that a runtime adds (CNI specification, section 3).
    pub fn configured_runtime(&self) -> Result<Runtime<'_>> {
        let file = self.cni_conf();
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let list: Value = serde_json::from_str(&text)?;
        let mut runtime = self.runtime();
        runtime.config =
            list["plugins"].get(0).with_context(|| format!("no plugin in {list}"))?.clone();
        Ok(runtime
            .with("cniVersion", list["cniVersion"].clone())
            .with("name", list["name"].clone()))
    }
}

impl Runtime<'_> {
    /// ADD for `pod`.
    pub fn add(&self, pod: &Pod) -> Result<Outcome> {
        self.call("ADD", Some(pod)).run()
    }

    /// DEL for `pod`.
    pub fn del(&self, pod: &Pod) -> Result<Outcome> {
        self.call("DEL", Some(pod)).run()
    }

    /// CHECK for `pod`, with the result of its ADD.
    pub fn check(&self, pod: &Pod, result: &Value) -> Result<Outcome> {
        self.with("prevResult", result.clone()).call("CHECK", Some(pod)).run()
    }

    /// STATUS.
    pub fn status(&self) -> Result<Outcome> {
        self.with("cniVersion", json!("1.1.0")).call("STATUS", None).run()
    }

    /// GC; the attachments of `pods` are the valid ones.
    pub fn gc(&self, pods: &[&Pod]) -> Result<Outcome> {
        let valid: Vec<Value> = pods
            .iter()
            .map(|pod| json!({"containerID": pod.sandbox, "ifname": self.ifname}))
            .collect();
        self.with("cniVersion", json!("1.1.0"))
            .with("cni.dev/valid-attachments", json!(valid))
            .call("GC", None)
            .run()
    }

    /// VERSION.
    pub fn version(&self) -> Result<Outcome> {
        self.call("VERSION", None).run()
    }

    /// The same runtime with one key of the configuration set.
    #[must_use]
    pub fn with(&self, key: &str, value: Value) -> Self {
        let mut runtime = self.clone();
        runtime.config[key] = value;
        runtime
    }

    /// The plugin's invocation for `CNI_COMMAND` `verb`, to be changed or started by the caller.
    pub fn call(&self, verb: &str, pod: Option<&Pod>) -> Invocation {
        let installed = Path::new(mounts::PLUGINS).join(executable::PLUGIN);
        let (mut command, executable) = match &self.program {
            None => (self.node.command(&installed), self.node.path(installed)),
            Some(program) => (Command::new(program), program.clone()),
        };
        // Nothing of the test's environment reaches the plugin.
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_COMMAND", verb)
            .env("CNI_PATH", mounts::PLUGINS);
        if let Some(pod) = pod {
            command
                .env("CNI_CONTAINERID", &pod.sandbox)
                .env("CNI_NETNS", &pod.netns)
                .env("CNI_IFNAME", &self.ifname);
            command.env("CNI_ARGS", cni_args(pod));
        }
        let owes = self.program.is_none().then(|| Owes {
            verb: verb.to_owned(),
            config: self.config.clone(),
            answers: self.node.answers.clone(),
        });
        Invocation { command, input: self.config.to_string(), executable, owes }
    }

    /// `cnitool VERB ovn-kubernetes NETNS`, with the configuration that is in the node's
    /// `/etc/cni/net.d`.
    pub fn cnitool(&self, verb: &str, pod: &Pod) -> Result<Invocation> {
        let executable = executable::tool("cnitool")?;
        let mut command = self.node.command(&executable);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_PATH", mounts::PLUGINS);
        command
            .env("NETCONFPATH", "/etc/cni/net.d")
            .env("CNI_IFNAME", &self.ifname)
            .env("CNI_ARGS", cni_args(pod));
        command.arg(verb).arg("ovn-kubernetes").arg(&pod.netns);
        Ok(Invocation { command, input: String::new(), executable, owes: None })
    }
}

impl Node {
    /// `ocicni VERB POD…`: CRI-O's own package (`integration/ocicni`), with the node's
    /// configuration, plugins and cache of results. The verbs: `add`, `check`, `del`, `gc`,
    /// `status`.
    pub fn ocicni(&self, verb: &str, pods: &[&Pod]) -> Result<Outcome> {
        let executable = executable::tool("ocicni")?;
        let mut command = self.command(&executable);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").arg(verb);
        command.args(pods.iter().map(|pod| {
            format!(
                "{}/{}/{}/{}/{}",
                pod.namespace,
                pod.name,
                pod.uid,
                pod.sandbox,
                pod.netns.display()
            )
        }));
        Invocation { command, input: String::new(), executable, owes: None }.run()
    }
}

/// `CNI_ARGS` for `pod`, as containerd and CRI-O write it.
pub fn cni_args(pod: &Pod) -> String {
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
        pod.namespace, pod.name, pod.sandbox, pod.uid
    )
}

/// One call of the plugin that has not begun yet.
#[derive(Debug)]
pub struct Invocation {
    command: Command,
    input: String,
    /// Path as the lab's root sees it.
    executable: PathBuf,
    owes: Option<Owes>,
}

/// Where the plugin's answer is recorded, and what it is checked against.
#[derive(Debug)]
struct Owes {
    verb: String,
    config: Value,
    answers: Answers,
}

impl Invocation {
    /// Sets a variable of the plugin's environment.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl Into<OsString>) -> Self {
        self.command.env(key, value.into());
        self
    }

    /// Leaves a variable out.
    #[must_use]
    pub fn without_env(mut self, key: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(key);
        self
    }

    /// Replaces what is on standard input.
    #[must_use]
    pub fn input(mut self, text: impl Into<String>) -> Self {
        self.input = text.into();
        self
    }

    /// Starts it without waiting for its end.
    ///
    /// # Errors
    /// If the plugin is not built, or cannot be started.
    pub fn start(mut self) -> Result<Running> {
        let line = command::line(&self.command);
        ensure!(
            self.executable.exists(),
            "{} is not installed on the node; build it with: cargo build -p cni -p ovnkube",
            self.executable.display()
        );
        let began = Instant::now();
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().with_context(|| format!("start `{line}`"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // Ignored: a plugin that does not read its input to the end says so in its answer.
            let _ = stdin.write_all(self.input.as_bytes());
        }
        Ok(Running { child, began, owes: self.owes })
    }

    /// Runs it to its end.
    pub fn run(self) -> Result<Outcome> {
        self.start()?.wait()
    }
}

/// A call of the plugin that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    began: Instant,
    owes: Option<Owes>,
}

impl Running {
    /// Process id of the plugin itself: nsenter(1) executes it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal: SIGKILL, SIGSTOP, …
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid().try_into()?), signal)
            .with_context(|| format!("{signal} to the plugin"))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    pub fn wait(self) -> Result<Outcome> {
        let output = self.child.wait_with_output().context("wait for the plugin")?;
        let duration = self.began.elapsed();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let outcome = Outcome {
            status: output.status,
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            duration,
        };
        if let Some(Owes { verb, config, answers }) = &self.owes {
            answers.keep(Answer::new(verb, config, &outcome));
        }
        Ok(outcome)
    }
}
