//! Compares a schema with a definition.

use arrow_schema::{DataType, Field as ArrowField, Fields};
use nervure_message::{DType, TensorColumn, TensorLayout};
use nervure_protocol::nearest;

use super::plan::{Plan, Step};
use crate::definition::{Definition, Field, Kind, Number};
use crate::misfit::Misfit;
use crate::tensor_rule::TensorRule;

/// Compares the schema of records with a definition.
pub(super) fn plan(
    type_name: &str,
    definition: &Definition,
    fields: &Fields,
) -> Result<Plan, Misfit> {
    let mut planner = Planner {
        type_name,
        path: String::new(),
        steps: Vec::new(),
        lengths: 1,
    };
    planner.nulls(false, &|| "a record".to_owned());
    planner.record(definition, fields, 0, false)?;
    Ok(Plan {
        steps: planner.steps.into(),
    })
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

pub(super) fn fits_elements(rule: &TensorRule, kind: &Kind, dtype: &DType) -> bool {
    match rule.dtypes.as_slice() {
        [] => dtype_of_items(kind).is_some_and(|known| known == *dtype),
        known => known.iter().any(|elements| elements.are(dtype)),
    }
}

fn shown_kind(kind: &Kind) -> String {
    format!("`{kind}`")
}

pub(super) fn shown_rules(rules: &[TensorRule]) -> String {
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    rules.join("; or ")
}

pub(super) fn shown_tensor(tensor: &TensorLayout) -> String {
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
pub(super) fn shown(column: &ArrowField) -> String {
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
