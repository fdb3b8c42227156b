//! The values of parameters. The keeper holds them, so that they outlive the processes that read
//! them.

use nervure_protocol::{
    cli_to_keeper::SetParam,
    did_you_mean,
    keeper_to_cli::{NodeParam, Refused},
    params::Param,
};

use crate::plan::{NodePlan, Plan};

/// Per node of the file, per parameter: its value.
#[derive(Debug)]
pub(super) struct Params(Vec<Vec<serde_json::Value>>);

impl Params {
    pub fn new(plan: &Plan) -> Self {
        let values = |node: &NodePlan| {
            node.settings
                .params
                .iter()
                .map(|spec| spec.value.clone())
                .collect()
        };
        Self(plan.nodes.iter().map(values).collect())
    }

    /// The parameters of a node, for its Welcome. A guest has none.
    pub fn of_node(&self, node: usize, plan: &NodePlan) -> Vec<Param> {
        let described = self.describe(node, plan).into_iter();
        described
            .map(|NodeParam { spec, value }| Param {
                name: spec.name,
                value,
            })
            .collect()
    }

    /// The parameters of a node: declarations of the file, and values.
    pub fn describe(&self, node: usize, plan: &NodePlan) -> Vec<NodeParam> {
        let values = self.0.get(node).into_iter().flatten();
        let params = plan.settings.params.iter().zip(values);
        params
            .map(|(spec, value)| NodeParam {
                spec: spec.clone(),
                value: value.clone(),
            })
            .collect()
    }

    /// Changes a parameter, if it takes the value. Returns the value before and after.
    pub fn set(
        &mut self,
        node: usize,
        plan: &NodePlan,
        set: &SetParam,
    ) -> Result<(serde_json::Value, serde_json::Value), Refused> {
        let specs = &plan.settings.params;
        let Some(at) = specs.iter().position(|spec| spec.name == set.name) else {
            let names = specs.iter().map(|spec| &*spec.name);
            let hint = match specs.is_empty() {
                true => "it has none: declare them in `params` of the dataflow file".to_owned(),
                false => did_you_mean(&set.name, "its parameters are", names),
            };
            let reason = format!("node `{}` has no parameter `{}`", set.node, set.name);
            return Err(Refused::new(reason, Some(&hint)));
        };
        let value = specs[at].change(set.value.clone()).map_err(|error| {
            Refused::new(format!("node `{}`: parameter {error}", set.node), None)
        })?;
        let before = std::mem::replace(&mut self.0[node][at], value.clone());
        Ok((before, value))
    }
}
