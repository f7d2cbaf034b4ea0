//! In which version the API server has a kind of object that an administrator defines. Knows
//! nothing of the objects.

use std::time::Duration;

use contract::definition::Definition;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{connection::Connection, trouble::Trouble};

/// Limit for one request: an API server that is up answers these from its memory. With ten times as
/// much, one lost answer would delay the first list of the kind by minutes.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the API server says of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// In this version, the newest of those that this program can read.
    In(&'static str),
    /// In other versions only, which this program cannot read.
    Otherwise(Vec<String>),
    Nowhere,
}

/// `APIGroup`, and `APIResourceList`, as far as they are used.
#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Debug, Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Debug, Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    name: String,
}

/// Asks the API server in which versions it has the kind.
///
/// # Errors
///
/// The API server does not answer, or refuses.
pub async fn served(connection: &Connection, definition: &Definition) -> Result<Served, Trouble> {
    let Definition { group, plural, versions } = definition;
    let Some(Group { versions: all }) = get(connection, &format!("/apis/{group}")).await? else {
        return Ok(Served::Nowhere);
    };
    let mut others = Vec::new();
    let mut newest = None;
    for GroupVersion { version } in all {
        let place = versions.iter().position(|known| *known == version);
        // One that is newer than this was found already.
        if place.is_some() && newest.is_some_and(|newest| place > Some(newest)) {
            continue;
        }
        let resources: Option<Resources> =
            get(connection, &format!("/apis/{group}/{version}")).await?;
        let resources = resources.map(|list| list.resources).unwrap_or_default();
        match place {
            _ if !resources.iter().any(|resource| resource.name == *plural) => {}
            Some(place) => newest = Some(place),
            None => others.push(version),
        }
    }
    Ok(match newest {
        Some(place) => {
            connection.found(definition, versions[place]);
            Served::In(versions[place])
        }
        None if others.is_empty() => Served::Nowhere,
        None => Served::Otherwise(others),
    })
}

/// A page of discovery; none if the API server has no such group or version.
async fn get<T: DeserializeOwned>(
    connection: &Connection,
    path: &str,
) -> Result<Option<T>, Trouble> {
    let request = hyper::Request::get(path)
        .body(Vec::new())
        .map_err(kube::core::request::Error::BuildRequest);
    let answer = match request {
        Ok(request) => connection.ask(PATIENCE, connection.client().request::<T>(request)).await,
        Err(error) => Err(connection.trouble(&kube::Error::BuildRequest(error))),
    };
    match answer {
        Ok(page) => Ok(Some(page)),
        Err(Trouble { code: Some(404), .. }) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scripted;

    const NEWEST_FIRST: Definition =
        Definition { group: "g.example", plural: "things", versions: &["v3", "v2", "v1"] };

    /// What is said of a kind where the group has these versions, and of them the second ones the
    /// kind.
    async fn said(group: &[&str], with_kind: &[&str]) -> Served {
        let (mut api, connection) = scripted::start().await;
        let asking = tokio::spawn(async move { served(&connection, &NEWEST_FIRST).await.unwrap() });
        while !asking.is_finished() {
            let asked = tokio::select! {
                asked = api.asked() => asked,
                () = async { while !asking.is_finished() { tokio::task::yield_now().await } } => break,
            };
            match asked.path.as_str() {
                "/apis/g.example" if group.is_empty() => asked.status(404, "page not found").await,
                "/apis/g.example" => {
                    let versions: Vec<_> =
                        group.iter().map(|version| json!({"version": version})).collect();
                    asked.json(&json!({"kind": "APIGroup", "versions": versions})).await;
                }
                path => {
                    let version =
                        path.strip_prefix("/apis/g.example/").expect("a version of the group");
                    let name = if with_kind.contains(&version) { "things" } else { "others" };
                    let resources = json!([{"name": name}, {"name": format!("{name}/status")}]);
                    asked.json(&json!({"kind": "APIResourceList", "resources": resources})).await;
                }
            }
        }
        asking.await.unwrap()
    }

    #[tokio::test]
    async fn the_newest_known_version_that_has_the_kind_is_chosen_whatever_the_order() {
        assert_eq!(said(&["v1", "v2", "v3"], &["v1", "v2"]).await, Served::In("v2"));
        assert_eq!(said(&["v3", "v2", "v1"], &["v1", "v3"]).await, Served::In("v3"));
        assert_eq!(said(&["v9", "v1"], &["v9", "v1"]).await, Served::In("v1"));
    }

    /// A version of the future looked like a kind that does not exist, of which there are no
    /// objects.
    #[tokio::test]
    async fn a_kind_in_unknown_versions_only_is_not_nowhere() {
        assert_eq!(
            said(&["v9", "v8", "v1"], &["v9", "v8"]).await,
            Served::Otherwise(vec!["v9".into(), "v8".into()])
        );
        assert_eq!(said(&["v9", "v1"], &[]).await, Served::Nowhere);
        assert_eq!(said(&[], &[]).await, Served::Nowhere);
    }
}
