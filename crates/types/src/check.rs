//! Checks whether the samples of an output fit its type.
//!
//! The schema of an array is compared with the definition once, which gives a plan: conditions on the few
//! numbers in the head of a sample, such as the items of its lists. A sample of a known schema is
//! compared with that plan alone. Payloads are not read, so values are not checked.
//!
//! A record has 64-bit numbers whatever its fields are, so a field takes every integer for an integer
//! type, and integers and floating-point numbers for a floating-point type. A tensor has the type that
//! NumPy gave it, and must have the field's.

mod plan;
mod planner;

use std::sync::{Arc, PoisonError, RwLock};

use arrow_schema::DataType;
use nervure_message::{Layout, PYTHON_KIND, Schema};

use crate::definition::{Definition, Field, Kind};
use crate::misfit::Misfit;
use plan::Plan;
use planner::{fits_elements, shown, shown_rules, shown_tensor};

/// Checks the samples of one output.
#[derive(Debug)]
pub struct SampleCheck {
    type_name: Box<str>,
    definition: Arc<Definition>,
    /// The plans of schemas that fit, by the id of the schema.
    plans: RwLock<Vec<(u64, Plan)>>,
}

/// Limit on the known schemas of an output. The schema of a record depends on its values: an empty list
/// has no type of items.
const MAX_PLANS: usize = 32;

impl SampleCheck {
    /// A check of samples of the type `type_name` with this definition.
    pub fn new(type_name: &str, definition: Arc<Definition>) -> Self {
        Self {
            type_name: type_name.into(),
            definition,
            plans: RwLock::default(),
        }
    }

    /// The name of the type, such as `std/Imu@1`.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The definition that samples are compared with.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Checks a sample.
    ///
    /// # Errors
    /// [`Misfit`].
    pub fn check(&self, layout: &Layout, schema: Option<&Schema>) -> Result<(), Misfit> {
        if let Some(field) = self.definition.payload() {
            return self.payload(field, layout);
        }
        let (Layout::Array(array), Some(schema)) = (layout, schema) else {
            return Err(self.no_record(layout.kind_name()));
        };
        if array.len() != 1 {
            return Err(self.no_record(&format!("an array of {} elements", array.len())));
        }
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plan)) = plans.iter().find(|(id, _)| *id == schema.id()) {
            return plan.check(array);
        }
        drop(plans);
        let plan = self.plan(schema)?;
        plan.check(array)?;
        let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
        if plans.len() == MAX_PLANS {
            plans.clear();
        }
        plans.push((schema.id(), plan));
        Ok(())
    }

    /// Checks a sample that consists of one field.
    fn payload(&self, field: &Field, layout: &Layout) -> Result<(), Misfit> {
        let rules = &field.tensors;
        let is_fit = match layout {
            Layout::Text => matches!(field.kind, Kind::Text(_)),
            Layout::Bytes => !matches!(field.kind, Kind::Text(_)) && rules.is_empty(),
            Layout::Tensor(tensor) => rules.iter().any(|rule| {
                fits_elements(rule, &field.kind, tensor.dtype()) && rule.has_shape(tensor.shape())
            }),
            Layout::Scalar(_) | Layout::Array(_) => false,
        };
        if is_fit {
            return Ok(());
        }
        let expected = match &field.kind {
            Kind::Text(_) => "text".to_owned(),
            _ if rules.is_empty() => "bytes".to_owned(),
            _ => format!("a tensor: {}", shown_rules(rules)),
        };
        let found = match layout {
            Layout::Tensor(tensor) => shown_tensor(tensor),
            other => other.kind_name().to_owned(),
        };
        Err(self.whole(expected, found))
    }

    fn plan(&self, schema: &Schema) -> Result<Plan, Misfit> {
        let root = schema.root();
        let is_list = root
            .metadata()
            .get(PYTHON_KIND)
            .is_some_and(|kind| kind == "list");
        let DataType::Struct(fields) = schema.data_type() else {
            return Err(self.no_record(&shown(root)));
        };
        if is_list {
            return Err(self.no_record("a list"));
        }
        planner::plan(&self.type_name, &self.definition, fields)
    }

    fn no_record(&self, found: &str) -> Misfit {
        self.whole(
            "one record: a dict, dataclass or struct".to_owned(),
            found.to_owned(),
        )
    }

    fn whole(&self, expected: String, found: String) -> Misfit {
        Misfit {
            type_name: self.type_name.clone(),
            field: String::new(),
            expected,
            found,
            hint: None,
        }
    }
}

#[cfg(test)]
mod tests;
