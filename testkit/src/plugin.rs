//! One call of the plugin, as a runtime makes it, and its outcome.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::Write,
    process::{Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use contract::error::{CniError, Code};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{executable, namespace::Namespace, process::signal_to, program};

/// The default for `CNI_ARGS`: the pod `shop/cart-0`.
pub const POD_ARGS: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0";
/// Limit for a call: far longer than any deadline in the tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call that has not started: environment and standard input.
#[derive(Debug)]
pub struct Plugin<'a> {
    environment: BTreeMap<String, OsString>,
    stdin: Input,
    namespace: Option<&'a Namespace>,
}

#[derive(Debug)]
enum Input {
    Bytes(Vec<u8>),
    File(File),
}

/// A running call.
#[derive(Debug)]
pub struct Running {
    pid: u32,
    line: String,
    end: Receiver<(std::io::Result<std::process::Output>, Duration)>,
}

/// The outcome of a call.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// From the start of the process to its end.
    pub duration: Duration,
}

/// A unique sandbox ID: calls of two tests for the same sandbox would disturb each other.
pub fn new_sandbox() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Unique in its first 15 characters, which become the name of the host's link.
    let unique =
        format!("cf{:07x}{:06x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    format!("{unique:0<64}")
}

impl<'a> Plugin<'a> {
    /// A call with only `CNI_COMMAND` in its environment, and empty standard input.
    pub fn bare(verb: &str) -> Self {
        Self { environment: BTreeMap::new(), stdin: Input::Bytes(Vec::new()), namespace: None }
            .with("CNI_COMMAND", verb)
    }

    /// A call with every variable that a runtime sets, for pod `shop/cart-0` in a new sandbox.
    pub fn new(verb: &str) -> Self {
        Self::bare(verb)
            .with("CNI_CONTAINERID", new_sandbox())
            .with("CNI_NETNS", "/var/run/netns/of-no-sandbox")
            .with("CNI_IFNAME", "eth0")
            .with("CNI_ARGS", POD_ARGS)
            .with("CNI_PATH", "/opt/cni/bin")
    }

    /// Sets a variable.
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.to_owned(), value.into());
        self
    }

    /// Removes a variable.
    pub fn without(mut self, name: &str) -> Self {
        self.environment.remove(name);
        self
    }

    /// Runs the call in this namespace, with root's powers over it.
    pub fn in_namespace(mut self, namespace: &'a Namespace) -> Self {
        self.namespace = Some(namespace);
        self.with("CNI_NETNS", namespace.path())
    }

    /// Sets the contents of standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Input::Bytes(bytes.into());
        self
    }

    /// Sets the file that is standard input.
    pub fn stdin_from(mut self, file: File) -> Self {
        self.stdin = Input::File(file);
        self
    }

    /// Sets the configuration.
    pub fn conf(self, conf: &Value) -> Self {
        self.stdin(conf.to_string())
    }

    /// Runs the call and waits for its end.
    #[track_caller]
    pub fn run(self) -> Outcome {
        self.start().end()
    }

    /// Starts the call.
    #[track_caller]
    pub fn start(self) -> Running {
        let mut command = self.command();
        let line = format!("{command:?}");
        let started = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        let pid = child.id();
        let (sender, end) = mpsc::channel();
        thread::spawn(move || {
            if let (Some(mut pipe), Input::Bytes(bytes)) = (child.stdin.take(), self.stdin) {
                // The plugin may exit without reading it: EPIPE is no failure.
                let _ = pipe.write_all(&bytes);
            }
            let output = child.wait_with_output();
            // The receiver is gone if the test has ended.
            let _ = sender.send((output, started.elapsed()));
        });
        Running { pid, line, end }
    }

    fn command(&self) -> Command {
        let plugin = executable::path(executable::PLUGIN);
        let mut command = match self.namespace {
            Some(namespace) => namespace.enter(plugin),
            None => program::unprivileged(plugin),
        };
        command.env_clear().envs(&self.environment).stdout(Stdio::piped()).stderr(Stdio::piped());
        match &self.stdin {
            Input::Bytes(_) => command.stdin(Stdio::piped()),
            Input::File(file) => {
                command.stdin(file.try_clone().expect("an open file can be opened again"))
            }
        };
        command
    }
}

impl Running {
    /// Waits for the end of the call.
    #[track_caller]
    pub fn end(self) -> Outcome {
        let Ok((output, duration)) = self.end.recv_timeout(PATIENCE) else {
            signal_to(self.pid, Signal::SIGKILL);
            panic!("still running after {PATIENCE:?}: {}", self.line);
        };
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", self.line));
        Outcome {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            duration,
        }
    }
}

impl Outcome {
    /// Checks for success without output.
    #[track_caller]
    pub fn success(&self) {
        assert!(self.status.success() && self.stdout.is_empty(), "{self:?}");
    }

    /// Checks for success with one JSON object on one line, and returns it.
    #[track_caller]
    pub fn result(&self) -> Value {
        assert!(self.status.success(), "{self:?}");
        self.only_object()
    }

    /// Checks for a failure, i.e. exit status 1 and nothing but one CNI error on standard output.
    /// Returns the error.
    #[track_caller]
    pub fn error(&self) -> CniError {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        let error: CniError = serde_json::from_value(self.only_object())
            .unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert!(!error.msg.is_empty() && !error.cni_version.is_empty(), "{self:?}");
        error
    }

    /// Checks for a failure with this code, and returns its message.
    #[track_caller]
    pub fn refused(&self, code: Code) -> String {
        let error = self.error();
        assert_eq!((error.code, Code::from_number(error.code)), (code.number(), code), "{error:?}");
        error.msg
    }

    #[track_caller]
    fn only_object(&self) -> Value {
        let value: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert!(value.is_object() && self.stdout.trim_end().lines().count() == 1, "{self:?}");
        value
    }
}
