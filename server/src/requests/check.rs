//! CHECK: answers what an ADD would be told now, for the plugin to compare with; nothing if that is
//! not known. Upstream's plugin never asks.

use contract::wire::{Request, Response};

use super::{
    ApiResponse, HandlerState,
    add::Call,
    pod_wait::{PodWait, WaitStep},
};
use crate::api_error::ApiError;

impl HandlerState {
    pub(super) fn check(&self, request: &Request) -> Result<ApiResponse, ApiError> {
        let Call { args, conf, .. } = Call::read(request)?;
        let mut watch = self.source.watch(&args.pod);
        match PodWait::new(args, conf.network, conf.mtu, self.add).look(watch.now().as_deref())? {
            WaitStep::Answer(answer) => ApiResponse::json(&Response::to_plugin(*answer)),
            WaitStep::Wait(_) => Ok(ApiResponse::EMPTY),
        }
    }
}
