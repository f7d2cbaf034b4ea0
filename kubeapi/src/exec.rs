//! A command in a container of a pod, as `kubectl exec` runs one. Takes the rights to create and
//! get `pods/exec`: an API server asks for the one or the other, by its version.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Api,
    api::{AttachParams, AttachedProcess},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};

use crate::{
    connection::Connection,
    trouble::{Kind, Trouble},
};

/// Bytes of the error output that are kept: its beginning says why.
const ERRORS: u64 = 4096;

/// Where a command runs.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    pub name: &'a str,
}

/// What a command has printed, and whether it succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    pub output: Vec<u8>,
    /// Its beginning.
    pub errors: String,
    /// Why the command failed, in the runtime's words, such as its exit status.
    pub failure: Option<String>,
}

impl Connection {
    /// Runs the command without input. It is not ended when this gives up.
    ///
    /// # Errors
    ///
    /// The API server refuses it, or it has not ended within `patience`, or it prints more than
    /// `most` bytes.
    pub async fn exec(
        &self,
        container: Container<'_>,
        command: &[&str],
        most: u64,
        patience: Duration,
    ) -> Result<Printed, Trouble> {
        let Container { namespace, pod, name } = container;
        let pods: Api<Pod> = Api::namespaced(self.client().clone(), namespace);
        let how = AttachParams::default().container(name).stdout(true).stderr(true);
        let begun = self.ask(patience, pods.exec(pod, command.iter().copied(), &how)).await?;
        let troubled = |why: String| {
            let text = format!("{} in pod {namespace}/{pod} {why}", command.join(" "));
            Trouble::without_answer(Kind::Unavailable, text)
        };
        match timeout(patience, printed(begun, most)).await {
            Ok(Some(printed)) => Ok(printed),
            Ok(None) => Err(troubled(format!("prints more than {most} bytes"))),
            Err(_) => Err(troubled(format!("does not end within {} s", patience.as_secs()))),
        }
    }
}

/// `None`: more than `most` bytes.
async fn printed(mut process: AttachedProcess, most: u64) -> Option<Printed> {
    let (output, errors) = (process.stdout()?, process.stderr()?);
    let status = process.take_status()?;
    let (output, errors) = tokio::try_join!(whole(output, most), beginning(errors)).ok()?;
    let errors = String::from_utf8_lossy(&errors).into_owned();
    Some(Printed { output, errors, failure: failure(status.await.as_ref()) })
}

fn failure(status: Option<&Status>) -> Option<String> {
    match status {
        None => Some("the connection ended before the command".to_owned()),
        Some(status) if status.status.as_deref() == Some("Success") => None,
        Some(status) => Some(status.message.clone().unwrap_or_default()),
    }
}

/// An error if there are more than `most` bytes.
async fn whole(mut stream: impl AsyncRead + Unpin, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    (&mut stream).take(most).read_to_end(&mut bytes).await?;
    match stream.read(&mut [0]).await? {
        0 => Ok(bytes),
        _ => Err(ErrorKind::FileTooLarge.into()),
    }
}

/// The first bytes. The rest is read, too: a pipe that nobody reads holds up the other one.
async fn beginning(mut stream: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    (&mut stream).take(ERRORS).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(bytes)
}
