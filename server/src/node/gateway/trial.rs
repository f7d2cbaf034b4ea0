//! What has to answer after a NIC was moved to a bridge, and is asked for until it does. The record
//! of it is in Open vSwitch's database: a server that starts after one that has died goes on with
//! it.

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use kube::Error;
use kubeapi::Connection;
use tokio::time::{Instant, sleep, timeout};

/// How long what answered before may be silent. A bridge learns, and neighbours are asked, in a
/// second; the rest is for a busy node. Longer, and a node is lost for so long.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long the API server may take for one answer, and how long a silence lasts before the next
/// question.
const ANSWER: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(500);
/// In the record, for the API server.
const API_SERVER: &str = "api-server";

/// What answered before a NIC was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trial {
    /// The name of the NIC.
    pub(super) nic: String,
    routers: Vec<IpAddr>,
    api_server: ApiServer,
}

/// Whether the API server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApiServer {
    Answers,
    /// Or there is none.
    Silent,
}

impl Trial {
    /// What answers now over this link.
    pub(super) async fn of(
        nic: &str,
        routers: &[IpAddr],
        api_server: Option<&Connection>,
    ) -> Result<Self, uplink::NotMoved> {
        let routers = uplink::answering(nic, routers).await?;
        Ok(Self { nic: nic.to_owned(), routers, api_server: ApiServer::asked(api_server).await })
    }

    /// Whether nothing answered, so that nothing can be missed.
    pub(super) fn is_empty(&self) -> bool {
        self.routers.is_empty() && self.api_server == ApiServer::Silent
    }

    /// Waits until all of it answers again, over the bridge.
    ///
    /// # Errors
    /// What is still silent after the deadline.
    pub(super) async fn end(
        &self,
        bridge: &str,
        api_server: Option<&Connection>,
    ) -> Result<(), String> {
        let deadline = Instant::now() + DEADLINE;
        let (mut routers, mut api) = (self.routers.clone(), self.api_server);
        loop {
            let answering = uplink::answering(bridge, &routers).await.unwrap_or_default();
            routers.retain(|router| !answering.contains(router));
            if api == ApiServer::Answers && ApiServer::asked(api_server).await == ApiServer::Answers
            {
                api = ApiServer::Silent;
            }
            if routers.is_empty() && api == ApiServer::Silent {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let api = (api == ApiServer::Answers).then(|| "the API server".to_owned());
                let silent: Vec<String> =
                    routers.iter().map(ToString::to_string).chain(api).collect();
                return Err(silent.join(", "));
            }
            sleep(PAUSE).await;
        }
    }
}

impl ApiServer {
    async fn asked(connection: Option<&Connection>) -> Self {
        let Some(connection) = connection else { return Self::Silent };
        match timeout(ANSWER, connection.client().apiserver_version()).await {
            // A refusal is an answer, too.
            Ok(Ok(_) | Err(Error::Api(_))) => Self::Answers,
            Ok(Err(_)) | Err(_) => Self::Silent,
        }
    }
}

/// Words between spaces: the NIC, then routers, then perhaps the API server.
impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.nic)?;
        self.routers.iter().try_for_each(|router| write!(f, " {router}"))?;
        match self.api_server {
            ApiServer::Answers => write!(f, " {API_SERVER}"),
            ApiServer::Silent => Ok(()),
        }
    }
}

impl FromStr for Trial {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_whitespace();
        let nic = words.next().unwrap_or_default().to_owned();
        let (api, routers): (Vec<&str>, Vec<&str>) = words.partition(|word| *word == API_SERVER);
        let routers = routers.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        let api_server = if api.is_empty() { ApiServer::Silent } else { ApiServer::Answers };
        Ok(Self { nic, routers, api_server })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for text in
            ["eth0", "eth0 172.31.0.1 fe80::1", "eth0 172.31.0.1 api-server", "eth0 api-server"]
        {
            assert_eq!(text.parse::<Trial>().unwrap().to_string(), text);
        }
        assert!("eth0".parse::<Trial>().unwrap().is_empty());
        assert!("eth0 nonsense".parse::<Trial>().is_err());
    }
}
