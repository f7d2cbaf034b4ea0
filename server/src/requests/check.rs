//! CHECK: what an ADD would be told now, for the plugin to compare with. Nothing if that is not known; upstream's plugin never asks.

use contract::wire::{Request, Response};

use super::{
    Desk, Reply,
    add::Call,
    pod_wait::{PodWait, Step},
};
use crate::refusal::Refusal;

impl Desk {
    pub(super) fn check(&self, request: &Request) -> Result<Reply, Refusal> {
        let Call { args, conf, .. } = Call::read(request)?;
        let mut watch = self.source.watch(&args.pod);
        match PodWait::new(args, conf.network, conf.mtu, self.add).look(watch.now().as_deref())? {
            Step::Answer(answer) => Reply::json(&Response::to_plugin(*answer)),
            Step::Wait(_) => Ok(Reply::EMPTY),
        }
    }
}
