//! The values of parameters: the keeper's, so that they outlive the processes that read them.

use nervure_protocol::{
    cli_to_keeper::SetParam,
    did_you_mean,
    keeper_to_cli::{self, NodeParam, Refused},
    keeper_to_node,
    keeper_to_run::Level,
    params::Param,
};

use super::{Machine, clients::refused};
use crate::plan::Plan;

/// Per node of the file, per parameter: its value.
#[derive(Debug)]
pub(super) struct Params(Vec<Vec<serde_json::Value>>);

impl Params {
    pub fn new(plan: &Plan) -> Self {
        let values = |node: &crate::plan::NodePlan| {
            node.params.iter().map(|spec| spec.value.clone()).collect()
        };
        Self(plan.nodes.iter().map(values).collect())
    }
}

impl Machine {
    /// The parameters of a node, for its Welcome. A guest has none.
    pub(super) fn params_of(&self, node: usize) -> Vec<Param> {
        let values = self.params.0.get(node).into_iter().flatten();
        let params = self.plan.nodes[node].params.iter().zip(values);
        params
            .map(|(spec, value)| Param {
                name: spec.name.clone(),
                value: value.clone(),
            })
            .collect()
    }

    /// Tells a client the parameters of one node, or of all.
    pub(super) fn tell_params(&mut self, client: usize, id: Option<&str>) -> Result<(), Refused> {
        let nodes = match id {
            Some(id) => {
                let node = self.find_node(id)?;
                node..node + 1
            }
            None => 0..self.own_nodes,
        };
        for node in nodes {
            let plan = &self.plan.nodes[node];
            if id.is_none() && plan.params.is_empty() {
                continue;
            }
            let params = plan.params.iter().zip(&self.params.0[node]);
            let params = params.map(|(spec, value)| NodeParam {
                spec: spec.clone(),
                value: value.clone(),
            });
            let (node, params) = (plan.id.clone(), params.collect());
            self.reply(
                client,
                keeper_to_cli::Message::Params { node, params },
                None,
            );
        }
        Ok(())
    }

    /// Changes a parameter. Nobody sees a value that it does not take.
    pub(super) fn set_param(&mut self, set: SetParam, client: &str) -> Result<(), Refused> {
        let node = self.find_node(&set.node)?;
        let specs = &self.plan.nodes[node].params;
        let Some(at) = specs.iter().position(|spec| spec.name == set.name) else {
            let names = specs.iter().map(|spec| &*spec.name);
            let hint = match specs.is_empty() {
                true => "it has none: declare them in `params` of the dataflow file".to_owned(),
                false => did_you_mean(&set.name, "its parameters are", names),
            };
            let reason = format!("node `{}` has no parameter `{}`", set.node, set.name);
            return Err(refused(reason, Some(&hint)));
        };
        let value = specs[at]
            .change(set.value)
            .map_err(|error| refused(format!("node `{}`: parameter {error}", set.node), None))?;
        let before = std::mem::replace(&mut self.params.0[node][at], value.clone());
        if before == value {
            return Ok(());
        }
        let text = format!(
            "parameter `{}` is {value}, it was {before}: set by `{client}`",
            set.name
        );
        self.log(Some(node), Level::Info, text);
        // Otherwise its Welcome will tell.
        if self.nodes[node].is_connected() {
            let param = Param {
                name: set.name,
                value,
            };
            self.send(node, keeper_to_node::Message::Param(param), Vec::new());
        }
        Ok(())
    }
}
