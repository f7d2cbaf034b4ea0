//! What the proxy remembers of a request.

use std::time::Instant;

use testkit::scripted_api;

use super::Of;

/// A request, and when it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// When it had arrived.
    pub at: Instant,
    /// Method, such as `GET`.
    pub method: String,
    /// Path with its parameters.
    pub path: String,
    /// The bearer token, empty if there was none. It is no secret: the lab made it.
    pub token: String,
}

impl From<&scripted_api::Asked> for Asked {
    fn from(request: &scripted_api::Asked) -> Self {
        let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        Self {
            at: Instant::now(),
            method: request.method.clone(),
            path: request.path.clone(),
            token: token.unwrap_or_default().to_owned(),
        }
    }
}

impl Asked {
    /// Whether `of` includes it.
    pub fn is(&self, of: &Of) -> bool {
        let of_pods = self.method == "GET" && self.path.starts_with("/api/v1/pods?");
        let watch = self.path.contains("watch=");
        match of {
            Of::All => true,
            Of::Lists => of_pods && !watch,
            Of::Watches => of_pods && watch,
            Of::Patches => self.method == "PATCH" && self.path.contains("/pods/"),
            Of::Token(token) => self.token == *token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, path: &str) -> Asked {
        Asked {
            at: Instant::now(),
            method: method.to_owned(),
            path: path.to_owned(),
            token: "t".to_owned(),
        }
    }

    #[test]
    fn lists_and_watches_of_pods_are_told_apart() {
        assert!(asked("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode1").is(&Of::Lists));
        assert!(asked("GET", "/api/v1/pods?&watch=true").is(&Of::Watches));
        assert!(!asked("GET", "/api/v1/nodes?watch=true").is(&Of::Watches));
    }

    #[test]
    fn a_request_is_known_by_its_token() {
        let patch = asked("PATCH", "/api/v1/pods/x?a=b");
        assert!(patch.is(&Of::Token("t".to_owned())) && !patch.is(&Of::Token("u".to_owned())));
        assert!(patch.is(&Of::Patches) && !patch.is(&Of::Lists));
    }
}
