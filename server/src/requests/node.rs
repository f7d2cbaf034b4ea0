//! What the server says about its node, for `ovnkube status` on a machine that reaches no API
//! server.

use contract::wire::NodeAnswer;

use super::{ApiResponse, HandlerState};
use crate::{api_error::ApiError, conditions::Part};

impl HandlerState {
    pub(super) fn node(&self) -> Result<ApiResponse, ApiError> {
        let text = |(part, why): (Part, String)| (part.name().to_owned(), why);
        ApiResponse::json(&NodeAnswer {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plugin: self.metrics.plugin(),
            missing: self.conditions.all_missing().into_iter().map(text).collect(),
            remarks: self.conditions.all_remarks().into_iter().map(text).collect(),
            stages: self.metrics.stages(),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::requests::{ApiRequest, Body, test_state};

    #[tokio::test]
    async fn the_answer_has_each_condition_that_is_missing_and_each_remark() {
        let state = test_state::handler_state(false).handler_state;
        Part::NODE
            .into_iter()
            .filter(|part| *part != Part::PODS)
            .for_each(|part| state.conditions.met(part));
        state.conditions.missing(Part::PODS, "the API server does not answer");
        state.conditions.remark(Part::GATEWAY, "no default route");
        let answer = state.answer(ApiRequest::Node, Instant::now()).await.unwrap();
        let Body::Whole(body) = answer.body else { panic!("one body") };
        let answer: NodeAnswer = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer.node, "n1");
        assert_eq!(
            answer.missing,
            [("pods".to_owned(), "the API server does not answer".to_owned())].into()
        );
        assert_eq!(answer.remarks, [("gateway".to_owned(), "no default route".to_owned())].into());
    }
}
