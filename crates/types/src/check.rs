//! Checks whether the samples of an output fit its type.
//!
//! The schema of an array is compared with the definition once, which gives a plan: what the few numbers
//! in the head of a sample, such as the items of its lists, must be. A sample of a known schema is
//! compared with that plan alone. Payloads are not read, so values are not checked.
//!
//! A record has 64-bit numbers whatever its fields are, so a field takes every integer for an integer
//! type, and integers and floating-point numbers for a floating-point type. A tensor has the type that
//! NumPy gave it, and must have the field's.

use std::sync::{Arc, PoisonError, RwLock};

use arrow_schema::{DataType, Field as ArrowField, Fields};
use nervure_message::array::ArrayLayout;
use nervure_message::{DType, Layout, PYTHON_KIND, Schema, TensorColumn, TensorLayout};
use nervure_protocol::nearest;

use crate::definition::{Definition, Field, Kind, Number};
use crate::error::in_brackets;
use crate::tensor_rule::TensorRule;

/// Checks the samples of one output.
#[derive(Debug)]
pub struct SampleCheck {
    type_name: Box<str>,
    definition: Arc<Definition>,
    /// The plans of schemas that fit, by the id of the schema.
    plans: RwLock<Vec<(u64, Plan)>>,
}

/// Why a sample does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{type_name}{}: expected {expected}, found {found}{}", in_field(field), in_brackets(hint.as_deref()))]
pub struct Misfit {
    /// The type, such as `std/Imu@1`.
    pub type_name: Box<str>,
    /// The field, such as `angular_velocity.x`; empty for the whole sample.
    pub field: String,
    /// What the type has there.
    pub expected: String,
    /// What the sample has there.
    pub found: String,
    /// The likely fix.
    pub hint: Option<String>,
}

fn in_field(field: &str) -> String {
    match field {
        "" => String::new(),
        field => format!(", field `{field}`"),
    }
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
        let (is_fit, expected) = match (&field.kind, layout) {
            (Kind::Text(_), layout) => (*layout == Layout::Text, "text".to_owned()),
            (_, layout) if field.tensors.is_empty() => {
                (*layout == Layout::Bytes, "bytes".to_owned())
            }
            (kind, layout) => {
                let fits = |rule: &TensorRule| match layout {
                    Layout::Tensor(tensor) => {
                        fits_elements(rule, kind, tensor.dtype()) && rule.has_shape(tensor.shape())
                    }
                    _ => false,
                };
                (
                    field.tensors.iter().any(fits),
                    format!("a tensor: {}", shown_rules(&field.tensors)),
                )
            }
        };
        if is_fit {
            return Ok(());
        }
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
        let mut planner = Planner {
            type_name: &self.type_name,
            path: String::new(),
            steps: Vec::new(),
            lengths: 1,
        };
        planner.nulls(false, &|| "a record".to_owned());
        planner.record(&self.definition, fields, 0, false)?;
        Ok(Plan {
            steps: planner.steps.into(),
        })
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

/// What the numbers of a layout must be, in their order.
#[derive(Debug)]
struct Plan {
    steps: Box<[Step]>,
}

#[derive(Debug)]
enum Step {
    /// Any number.
    Any,
    /// The mark of nulls in an array. Where there must be none, the error.
    Nulls(Option<Box<Misfit>>),
    /// The number of items in the lists of the array of the last mark of nulls, whose length is
    /// `lengths[lists]`. It is the next of the lengths.
    Items {
        lists: usize,
        /// Number of items of each list.
        each: Option<usize>,
        /// Whether the items could only be null, so that there must be none.
        is_empty: bool,
        misfit: Box<Misfit>,
    },
    /// The next of the lengths, without a number: items of lists of one size.
    Multiple { lists: usize, each: usize },
}

impl Plan {
    fn check(&self, array: &ArrayLayout) -> Result<(), Misfit> {
        const MOST: usize = 32;
        let mut lengths = Lengths::<MOST>::new(array.len());
        let mut numbers = array.numbers();
        let mut has_nulls = false;
        for step in &self.steps {
            match step {
                Step::Any => {
                    numbers.next();
                }
                Step::Nulls(misfit) => {
                    has_nulls = numbers.next() != Some(0);
                    if let Some(misfit) = misfit.as_ref().filter(|_| has_nulls) {
                        return Err((**misfit).clone());
                    }
                }
                Step::Items {
                    lists,
                    each,
                    is_empty,
                    misfit,
                } => {
                    let items = numbers.next().unwrap_or_default() as usize;
                    let lists = lengths.get(*lists);
                    let fits = match each {
                        None => true,
                        // Null lists have no items.
                        Some(each) if has_nulls => {
                            items <= lists * each && items.is_multiple_of(*each)
                        }
                        Some(each) => items == lists * each,
                    };
                    if !fits || (*is_empty && items > 0) {
                        return Err(Misfit {
                            found: found_items(items, lists, *is_empty),
                            ..(**misfit).clone()
                        });
                    }
                    lengths.push(items);
                }
                Step::Multiple { lists, each } => lengths.push(lengths.get(*lists) * each),
            }
        }
        Ok(())
    }
}

fn found_items(items: usize, lists: usize, is_empty: bool) -> String {
    match (items, lists) {
        (items, _) if is_empty && items > 0 => "a list of nulls".to_owned(),
        (items, 1) => format!("{items}"),
        (items, lists) => format!("{items} in {lists} lists"),
    }
}

/// The lengths of arrays, on the stack as long as there are few.
struct Lengths<const MOST: usize> {
    few: [usize; MOST],
    more: Vec<usize>,
    count: usize,
}

impl<const MOST: usize> Lengths<MOST> {
    fn new(first: usize) -> Self {
        let mut few = [0; MOST];
        few[0] = first;
        Self {
            few,
            more: Vec::new(),
            count: 1,
        }
    }

    fn push(&mut self, length: usize) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = length,
            None => self.more.push(length),
        }
        self.count += 1;
    }

    fn get(&self, index: usize) -> usize {
        let known = self.few.get(index).or_else(|| self.more.get(index - MOST));
        known.copied().unwrap_or_default()
    }
}

/// Walks a schema in the order of [`nervure_message::array`].
struct Planner<'a> {
    type_name: &'a str,
    path: String,
    steps: Vec<Step>,
    /// Number of lengths so far.
    lengths: usize,
}

impl Planner<'_> {
    /// Plans the fields of records, of which there are `lengths[rows]`.
    fn record(
        &mut self,
        definition: &Definition,
        fields: &Fields,
        rows: usize,
        may_be_null: bool,
    ) -> Result<(), Misfit> {
        let mut seen = Vec::new();
        for column in fields {
            let known = definition
                .fields
                .iter()
                .find(|field| field.name == *column.name());
            let Some(field) = known.filter(|field| !seen.contains(&&field.name)) else {
                return Err(self.unknown(definition, column.name(), known.is_some()));
            };
            seen.push(&field.name);
            self.within(&field.name, |inner| {
                inner.column(
                    column,
                    &field.kind,
                    &field.tensors,
                    rows,
                    may_be_null || field.is_optional,
                )
            })?;
        }
        let is_missing = |field: &&Field| !field.is_optional && !seen.contains(&&field.name);
        match definition.fields.iter().find(is_missing) {
            None => Ok(()),
            Some(field) => self.within(&field.name, |inner| {
                Err(inner.misfit(shown_kind(&field.kind), "no such field".to_owned()))
            }),
        }
    }

    fn column(
        &mut self,
        column: &ArrowField,
        kind: &Kind,
        tensors: &[TensorRule],
        rows: usize,
        may_be_null: bool,
    ) -> Result<(), Misfit> {
        if *column.data_type() == DataType::Null {
            return match may_be_null {
                true => Ok(()),
                false => Err(self.misfit(shown_kind(kind), "null".to_owned())),
            };
        }
        self.nulls(may_be_null, &|| shown_kind(kind));
        if let Ok(Some((dtype, dimensions))) = TensorColumn::type_of(column) {
            return self.tensor(&dtype, dimensions, kind, tensors, rows);
        }
        let data_type = column.data_type();
        match (kind, data_type) {
            (Kind::Bool, DataType::Boolean) => {}
            (Kind::Number(number), found)
                if found.is_integer() || (number.is_float() && found.is_floating()) => {}
            (Kind::Text(_), DataType::Utf8 | DataType::LargeUtf8) => self.steps.push(Step::Any),
            (Kind::Message(message), DataType::Struct(fields)) => {
                self.record(message, fields, rows, may_be_null)?;
            }
            (
                Kind::Array(item, _) | Kind::Sequence(item, _),
                DataType::Binary | DataType::LargeBinary,
            ) if is_bytes(item) => {
                self.items(kind, rows, false);
            }
            (
                Kind::Array(item, _) | Kind::Sequence(item, _),
                DataType::List(found) | DataType::LargeList(found),
            ) => {
                let is_empty = *found.data_type() == DataType::Null;
                let items = self.items(kind, rows, is_empty);
                if !is_empty {
                    self.item(found, item, items)?;
                }
            }
            (
                Kind::Array(item, _) | Kind::Sequence(item, _),
                DataType::FixedSizeList(found, size),
            ) => {
                let size = size.unsigned_abs() as usize;
                if matches!(kind, Kind::Array(_, count) if *count != size) {
                    return Err(self.misfit(shown_kind(kind), format!("{size}")));
                }
                self.steps.push(Step::Multiple {
                    lists: rows,
                    each: size,
                });
                self.lengths += 1;
                self.item(found, item, self.lengths - 1)?;
            }
            _ => return Err(self.misfit(shown_kind(kind), shown(column))),
        }
        Ok(())
    }

    fn item(&mut self, column: &ArrowField, kind: &Kind, rows: usize) -> Result<(), Misfit> {
        let outer = self.path.len();
        self.path.push_str("[]");
        self.column(column, kind, &[], rows, false)?;
        self.path.truncate(outer);
        Ok(())
    }

    /// Plans the number of items of lists. Returns the index of their length.
    fn items(&mut self, kind: &Kind, lists: usize, is_empty: bool) -> usize {
        let each = match kind {
            Kind::Array(_, count) => Some(*count),
            _ => None,
        };
        let expected = match each {
            Some(count) => format!("{count} items (`{kind}`)"),
            None => shown_kind(kind),
        };
        let misfit = Box::new(self.misfit(expected, String::new()));
        self.steps.push(Step::Items {
            lists,
            each,
            is_empty,
            misfit,
        });
        self.lengths += 1;
        self.lengths - 1
    }

    fn tensor(
        &mut self,
        dtype: &DType,
        dimensions: usize,
        kind: &Kind,
        rules: &[TensorRule],
        rows: usize,
    ) -> Result<(), Misfit> {
        let is_row = dimensions == 1 && dtype_of_items(kind).is_some_and(|known| known == *dtype);
        let fits =
            |rule: &TensorRule| fits_elements(rule, kind, dtype) && rule.has_dimensions(dimensions);
        if !is_row && !rules.iter().any(fits) {
            let dimensions = match dimensions {
                1 => "1 dimension".to_owned(),
                many => format!("{many} dimensions"),
            };
            let mut misfit = self.misfit(
                shown_kind(kind),
                format!("a tensor of {dtype} with {dimensions}"),
            );
            misfit.hint = dtype_of_items(kind)
                .filter(|known| known != dtype)
                .map(|known| format!("`array.astype(\"{known}\")` converts it"));
            return Err(misfit);
        }
        // Nulls of `data`, its items and their nulls, nulls of `shape` and of its items.
        self.steps.push(Step::Any);
        self.items(kind, rows, false);
        self.steps.extend([Step::Any, Step::Any, Step::Any]);
        Ok(())
    }

    fn nulls(&mut self, are_allowed: bool, expected: &dyn Fn() -> String) {
        self.steps.push(match are_allowed {
            true => Step::Nulls(None),
            false => Step::Nulls(Some(Box::new(self.misfit(expected(), "null".to_owned())))),
        });
    }

    fn unknown(&self, definition: &Definition, name: &str, is_repeated: bool) -> Misfit {
        let names: Vec<&str> = definition
            .fields
            .iter()
            .map(|field| field.name.as_str())
            .collect();
        let (expected, hint) = match is_repeated {
            true => ("the field once".to_owned(), None),
            false => (
                format!("its fields: {}", names.join(", ")),
                nearest(name, names.iter().copied()).map(|near| format!("did you mean `{near}`?")),
            ),
        };
        let mut misfit = self.misfit(expected, format!("`{name}`"));
        misfit.hint = hint;
        misfit
    }

    fn within<T>(&mut self, name: &str, walk: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = walk(self);
        self.path.truncate(outer);
        result
    }

    fn misfit(&self, expected: String, found: String) -> Misfit {
        Misfit {
            type_name: self.type_name.into(),
            field: self.path.clone(),
            expected,
            found,
            hint: None,
        }
    }
}

fn is_bytes(item: &Kind) -> bool {
    matches!(item, Kind::Number(Number::U8 | Number::Byte | Number::Char))
}

/// The elements of a tensor in the place of a list.
fn dtype_of_items(kind: &Kind) -> Option<DType> {
    let (Kind::Array(item, _) | Kind::Sequence(item, _)) = kind else {
        return None;
    };
    Some(match **item {
        Kind::Bool => DType::Bool,
        Kind::Number(number) => match number {
            Number::I8 => DType::I8,
            Number::U8 | Number::Byte | Number::Char => DType::U8,
            Number::I16 => DType::I16,
            Number::U16 => DType::U16,
            Number::I32 => DType::I32,
            Number::U32 => DType::U32,
            Number::I64 => DType::I64,
            Number::U64 => DType::U64,
            Number::F32 => DType::F32,
            Number::F64 => DType::F64,
        },
        Kind::Text(_) | Kind::Message(_) | Kind::Array(..) | Kind::Sequence(..) => return None,
    })
}

fn fits_elements(rule: &TensorRule, kind: &Kind, dtype: &DType) -> bool {
    match rule.dtypes.as_slice() {
        [] => dtype_of_items(kind).is_some_and(|known| known == *dtype),
        known => known.iter().any(|elements| elements.are(dtype)),
    }
}

fn shown_kind(kind: &Kind) -> String {
    format!("`{kind}`")
}

fn shown_rules(rules: &[TensorRule]) -> String {
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    rules.join("; or ")
}

fn shown_tensor(tensor: &TensorLayout) -> String {
    let shape: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
    let dtype = match tensor.dtype() {
        DType::Custom { name, .. } if name.starts_with('[') => "struct",
        dtype => dtype.numpy_name(),
    };
    match shape.as_slice() {
        [] => format!("a tensor of {dtype} without dimensions"),
        shape => format!("a tensor of {dtype}, {}", shape.join(" x ")),
    }
}

/// A column, in the words of users.
fn shown(column: &ArrowField) -> String {
    if let Ok(Some((dtype, dimensions))) = TensorColumn::type_of(column) {
        return format!("a tensor of {dtype} with {dimensions} dimensions");
    }
    match column.data_type() {
        DataType::Null => "null".to_owned(),
        DataType::Boolean => "a truth value".to_owned(),
        found if found.is_integer() => "an integer".to_owned(),
        found if found.is_floating() => "a floating-point number".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 => "text".to_owned(),
        DataType::Binary | DataType::LargeBinary => "bytes".to_owned(),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            "a list".to_owned()
        }
        DataType::Struct(_) => "a record".to_owned(),
        other => format!("Arrow's type {other}"),
    }
}

#[cfg(test)]
mod tests;
