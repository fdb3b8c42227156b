//! dora's payloads, and their conversion from and to plain values. Nodes and operators name these types
//! by `dora_node_api` and `dora_operator_api`.

use std::ops::Deref;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date64Array, NullArray, PrimitiveArray, StringArray,
    Time64NanosecondArray, TimestampNanosecondArray, make_array,
};
use arrow::datatypes::*;
use arrow::temporal_conversions::time_to_time64ns;
use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use eyre::{ContextCompat, Result, bail};
use half::f16;
use num_traits::NumCast;

/// The name of [`DoraArray`] in dora 0.5.
pub use DoraArray as ArrowData;
pub use arrow;

/// A payload: an Arrow array.
///
/// Values are read with `try_from`: a number, `bool` or text out of an array of length 1, and slices
/// or vectors of numbers. None of them may have nulls.
///
/// ```
/// use dora_arrow_convert::{DoraArray, IntoArrow};
///
/// let data: DoraArray = vec![1.0_f32, 2.0].into_arrow();
/// let values: &[f32] = (&data).try_into()?;
/// assert_eq!(values, [1.0, 2.0]);
/// assert!(f32::try_from(&data).is_err());
/// # Ok::<(), eyre::Report>(())
/// ```
#[derive(Debug, Clone)]
pub struct DoraArray(pub ArrayRef);

impl DoraArray {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of nulls.
    pub fn null_count(&self) -> usize {
        self.0.null_count()
    }

    /// The name of the type, for messages.
    pub fn type_name(&self) -> String {
        format!("{:?}", self.0.data_type())
    }

    /// The array.
    pub fn as_array(&self) -> &ArrayRef {
        &self.0
    }

    /// The array.
    pub fn into_inner(self) -> ArrayRef {
        self.0
    }

    /// A payload of any array.
    pub fn from_array(array: impl Array + 'static) -> Self {
        Self(make_array(array.to_data()))
    }
}

impl Deref for DoraArray {
    type Target = ArrayRef;

    fn deref(&self) -> &ArrayRef {
        &self.0
    }
}

impl From<ArrayRef> for DoraArray {
    fn from(array: ArrayRef) -> Self {
        Self(array)
    }
}

impl From<DoraArray> for ArrayRef {
    fn from(array: DoraArray) -> Self {
        array.0
    }
}

/// A value that can be sent.
pub trait IntoArrow {
    /// Converts the value to a payload.
    fn into_arrow(self) -> DoraArray;
}

impl IntoArrow for DoraArray {
    fn into_arrow(self) -> DoraArray {
        self
    }
}

impl IntoArrow for ArrayRef {
    fn into_arrow(self) -> DoraArray {
        DoraArray(self)
    }
}

impl<T: ArrowPrimitiveType> IntoArrow for PrimitiveArray<T> {
    fn into_arrow(self) -> DoraArray {
        DoraArray(Arc::new(self))
    }
}

/// Arrays are payloads as they are.
macro_rules! arrays {
    ($($name:ident)*) => {
        $(
            impl IntoArrow for arrow::array::$name {
                fn into_arrow(self) -> DoraArray {
                    DoraArray(Arc::new(self))
                }
            }
        )*
    };
}
arrays!(
    BooleanArray NullArray StringArray LargeStringArray StringViewArray BinaryArray LargeBinaryArray
    BinaryViewArray FixedSizeBinaryArray StructArray ListArray LargeListArray FixedSizeListArray MapArray
    UnionArray
);

impl IntoArrow for () {
    fn into_arrow(self) -> DoraArray {
        NullArray::new(0).into_arrow()
    }
}

impl IntoArrow for bool {
    fn into_arrow(self) -> DoraArray {
        BooleanArray::from(vec![self]).into_arrow()
    }
}

impl IntoArrow for &str {
    fn into_arrow(self) -> DoraArray {
        StringArray::from(vec![self]).into_arrow()
    }
}

impl IntoArrow for String {
    fn into_arrow(self) -> DoraArray {
        self.as_str().into_arrow()
    }
}

impl IntoArrow for Vec<String> {
    fn into_arrow(self) -> DoraArray {
        StringArray::from(self).into_arrow()
    }
}

impl IntoArrow for NaiveDate {
    fn into_arrow(self) -> DoraArray {
        Date64Array::from(vec![Date64Type::from_naive_date(self)]).into_arrow()
    }
}

impl IntoArrow for NaiveTime {
    fn into_arrow(self) -> DoraArray {
        Time64NanosecondArray::from(vec![time_to_time64ns(self)]).into_arrow()
    }
}

impl IntoArrow for NaiveDateTime {
    /// A time outside 1677 to 2262 becomes the nearest one of that range.
    fn into_arrow(self) -> DoraArray {
        let utc = self.and_utc();
        let limit = if utc.timestamp() < 0 {
            i64::MIN
        } else {
            i64::MAX
        };
        let nanos = utc.timestamp_nanos_opt().unwrap_or(limit);
        TimestampNanosecondArray::from(vec![nanos]).into_arrow()
    }
}

/// The index of the only element.
fn only(array: &dyn Array) -> Result<usize> {
    if array.len() != 1 {
        bail!("expected an array of length 1, got length {}", array.len());
    }
    if array.null_count() != 0 {
        bail!("expected a value, got a null");
    }
    Ok(0)
}

fn without_nulls(array: &dyn Array) -> Result<()> {
    match array.null_count() {
        0 => Ok(()),
        nulls => bail!("expected an array without nulls, got {nulls}"),
    }
}

fn primitive<T: ArrowPrimitiveType>(data: &DoraArray) -> Result<&PrimitiveArray<T>> {
    let array = data.0.as_primitive_opt::<T>();
    array.with_context(|| {
        format!(
            "expected an array of {}, got {}",
            T::DATA_TYPE,
            data.type_name()
        )
    })
}

macro_rules! numbers {
    ($($number:ty: $arrow:ty,)*) => {
        $(
            impl IntoArrow for $number {
                fn into_arrow(self) -> DoraArray {
                    vec![self].into_arrow()
                }
            }

            impl IntoArrow for Vec<$number> {
                fn into_arrow(self) -> DoraArray {
                    PrimitiveArray::<$arrow>::from(self).into_arrow()
                }
            }

            impl TryFrom<&DoraArray> for $number {
                type Error = eyre::Report;

                fn try_from(data: &DoraArray) -> Result<Self> {
                    Ok(primitive::<$arrow>(data)?.value(only(&data.0)?))
                }
            }

            impl<'a> TryFrom<&'a DoraArray> for &'a [$number] {
                type Error = eyre::Report;

                fn try_from(data: &'a DoraArray) -> Result<Self> {
                    let array = primitive::<$arrow>(data)?;
                    without_nulls(array)?;
                    Ok(array.values())
                }
            }

            impl<'a> TryFrom<&'a DoraArray> for Vec<$number> {
                type Error = eyre::Report;

                fn try_from(data: &'a DoraArray) -> Result<Self> {
                    <&[$number]>::try_from(data).map(<[$number]>::to_vec)
                }
            }
        )*

        /// Reads an array of any type of numbers as a vector of `T`.
        ///
        /// # Errors
        /// If the array is not of numbers, has nulls, or has a number that `T` cannot express.
        ///
        /// ```
        /// use dora_arrow_convert::{IntoArrow, into_vec};
        ///
        /// assert_eq!(into_vec::<f64>(&vec![1_u8, 2].into_arrow())?, [1.0, 2.0]);
        /// assert!(into_vec::<u8>(&vec![256_u32].into_arrow()).is_err());
        /// # Ok::<(), eyre::Report>(())
        /// ```
        pub fn into_vec<T: Copy + NumCast + 'static>(data: &DoraArray) -> Result<Vec<T>> {
            without_nulls(&data.0)?;
            match data.0.data_type() {
                $(
                    data_type if *data_type == <$arrow>::DATA_TYPE => {
                        primitive::<$arrow>(data)?.values().iter().map(|&value| cast(value)).collect()
                    }
                )*
                other => bail!("expected an array of numbers, got {other:?}"),
            }
        }
    };
}
numbers!(
    i8: Int8Type,
    i16: Int16Type,
    i32: Int32Type,
    i64: Int64Type,
    u8: UInt8Type,
    u16: UInt16Type,
    u32: UInt32Type,
    u64: UInt64Type,
    f16: Float16Type,
    f32: Float32Type,
    f64: Float64Type,
);

fn cast<T: NumCast, N: num_traits::ToPrimitive + std::fmt::Display + Copy>(value: N) -> Result<T> {
    let type_name = std::any::type_name::<T>();
    T::from(value).with_context(|| format!("{value} cannot be expressed as {type_name}"))
}

impl TryFrom<&DoraArray> for bool {
    type Error = eyre::Report;

    fn try_from(data: &DoraArray) -> Result<Self> {
        let array = data.0.as_boolean_opt();
        let array =
            array.with_context(|| format!("expected booleans, got {}", data.type_name()))?;
        Ok(array.value(only(array)?))
    }
}

impl<'a> TryFrom<&'a DoraArray> for &'a str {
    type Error = eyre::Report;

    fn try_from(data: &'a DoraArray) -> Result<Self> {
        let array = data.0.as_string_opt::<i32>();
        let array = array.with_context(|| format!("expected text, got {}", data.type_name()))?;
        Ok(array.value(only(array)?))
    }
}

impl TryFrom<&DoraArray> for String {
    type Error = eyre::Report;

    fn try_from(data: &DoraArray) -> Result<Self> {
        <&str>::try_from(data).map(str::to_owned)
    }
}

macro_rules! times {
    ($($time:ty: $read:ident of $($arrow:ty)*;)*) => {
        $(
            impl TryFrom<&DoraArray> for $time {
                type Error = eyre::Report;

                fn try_from(data: &DoraArray) -> Result<Self> {
                    let index = only(&data.0)?;
                    $(
                        if let Some(array) = data.0.as_primitive_opt::<$arrow>() {
                            return array.$read(index).context("the time is out of range");
                        }
                    )*
                    bail!("expected {}, got {}", stringify!($time), data.type_name())
                }
            }
        )*
    };
}
times!(
    NaiveDate: value_as_date of Date32Type Date64Type;
    NaiveTime: value_as_time of Time32SecondType Time32MillisecondType Time64MicrosecondType
        Time64NanosecondType;
    NaiveDateTime: value_as_datetime of TimestampSecondType TimestampMillisecondType
        TimestampMicrosecondType TimestampNanosecondType;
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_way_there_and_back() {
        assert_eq!(u64::try_from(&7_u64.into_arrow()).unwrap(), 7);
        assert_eq!(f16::try_from(&f16::ONE.into_arrow()).unwrap(), f16::ONE);
        assert!(bool::try_from(&true.into_arrow()).unwrap());
        assert_eq!(String::try_from(&"text".into_arrow()).unwrap(), "text");
        assert_eq!(
            Vec::<i16>::try_from(&vec![1_i16, 2].into_arrow()).unwrap(),
            [1, 2]
        );
        let day = NaiveDate::from_ymd_opt(2026, 11, 24).unwrap();
        assert_eq!(NaiveDate::try_from(&day.into_arrow()).unwrap(), day);
        let time = NaiveTime::from_hms_nano_opt(1, 2, 3, 4).unwrap();
        assert_eq!(NaiveTime::try_from(&time.into_arrow()).unwrap(), time);
        let at = day.and_time(time);
        assert_eq!(NaiveDateTime::try_from(&at.into_arrow()).unwrap(), at);
        assert!(().into_arrow().is_empty());
    }

    #[test]
    fn errors_name_what_was_expected_and_found() {
        let error = u64::try_from(&"text".into_arrow()).unwrap_err();
        assert_eq!(error.to_string(), "expected an array of UInt64, got Utf8");
        let error = <&str>::try_from(&1_u8.into_arrow()).unwrap_err();
        assert_eq!(error.to_string(), "expected text, got UInt8");
        let error = u8::try_from(&vec![1_u8, 2].into_arrow()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected an array of length 1, got length 2"
        );
        let null = PrimitiveArray::<UInt8Type>::from(vec![None::<u8>]).into_arrow();
        assert!(u8::try_from(&null).is_err());
        assert!(<&[u8]>::try_from(&null).is_err());
        assert!(into_vec::<u8>(&null).is_err());
        assert!(into_vec::<u8>(&"text".into_arrow()).is_err());
    }

    #[test]
    fn a_time_out_of_range_becomes_the_nearest() {
        for (year, expected) in [(3000, i64::MAX), (1000, i64::MIN)] {
            let day = NaiveDate::from_ymd_opt(year, 1, 1).unwrap();
            let data = day.and_time(NaiveTime::MIN).into_arrow();
            let array = data.0.as_primitive::<TimestampNanosecondType>();
            assert_eq!(array.value(0), expected);
        }
    }
}
