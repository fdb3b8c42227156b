//! Requests of tools to services. They are rare and small, so they come over the control sockets; the
//! answers are samples of an output, which the tool observes.

use nervure_protocol::{
    cli_to_keeper::Call,
    did_you_mean,
    keeper_to_cli::Refused,
    keeper_to_node::{self, Message},
};

use super::{Requests, check_not_stopping, check_runs};
use crate::machine::{graph::index, supervisor::Supervisor, turn::Turn};

impl Requests {
    /// Passes a request on to the node of its service.
    pub(super) fn call(
        &self,
        client: usize,
        call: Call,
        supervisor: &Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        check_not_stopping(supervisor)?;
        let graph = supervisor.network().graph();
        let node = graph.find_node(&call.node)?;
        let plan = graph.node(node);
        let found = plan
            .services
            .iter()
            .position(|service| service.name == call.service && service.tools.is_some());
        let Some(service) = found else {
            let names = plan.services.iter().map(|service| &*service.name);
            let hint = match plan.services.is_empty() {
                true => "it has none: declare them in `services` of the dataflow file".to_owned(),
                false => did_you_mean(&call.service, "its services are", names),
            };
            let reason = format!("node `{}` has no service `{}`", call.node, call.service);
            return Err(Refused::new(reason, Some(&hint)));
        };
        check_runs(node, supervisor)?;
        let request = keeper_to_node::Call {
            service: index(service),
            client: self.clients.name(client),
            correlation_id: call.correlation_id,
            value: call.value,
            cancels: call.cancels,
            within_nanos: call.within_nanos,
        };
        turn.send(node, Message::Call(request));
        Ok(())
    }
}
