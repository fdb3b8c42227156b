//! Encodes and decodes [`DataType`] recursively.

use arrow_schema::{
    ArrowError, DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DECIMAL128_MAX_PRECISION,
    DECIMAL256_MAX_PRECISION, DataType, Field, Fields, IntervalUnit, Metadata, TimeUnit,
    UnionFields, UnionMode,
};

use super::error::{MAX_BYTES, MAX_DEPTH, MAX_FIELDS, SchemaError};
use crate::wire::{DecodeError, Head, Reader, put_bytes, put_number};

const VERSION: u8 = 1;

/// Encodes a schema: version, whether it is a record batch, the root field.
pub(super) fn encode(root: &Field, is_record_batch: bool) -> Result<Head, SchemaError> {
    let mut encoder = Encoder {
        out: Head::new(),
        fields_left: MAX_FIELDS,
    };
    encoder
        .out
        .extend_from_slice(&[VERSION, is_record_batch.into()]);
    encoder.field(root, MAX_DEPTH)?;
    match encoder.out.len() {
        found if found > MAX_BYTES => Err(SchemaError::Bytes { found }),
        _ => Ok(encoder.out),
    }
}

/// The inverse of [`encode`].
pub(super) fn decode(bytes: &[u8]) -> Result<(Field, bool), DecodeError> {
    const WHAT: &str = "schema";
    if bytes.len() > MAX_BYTES {
        let (found, limit) = (bytes.len() as u64, MAX_BYTES as u64);
        return Err(DecodeError::Limit {
            what: "size of the schema",
            found,
            limit,
        });
    }
    let mut decoder = Decoder {
        reader: Reader::new(bytes),
        fields_left: MAX_FIELDS,
    };
    let version = decoder.reader.byte(WHAT)?;
    if version != VERSION {
        return Err(DecodeError::Version {
            what: WHAT,
            found: version,
            expected: VERSION,
        });
    }
    let is_record_batch = decoder.flag()?;
    let root = decoder.field(MAX_DEPTH)?;
    decoder.reader.finish(WHAT)?;
    if is_record_batch && !matches!(root.data_type(), DataType::Struct(_)) {
        return Err(invalid(format!(
            "a record batch is a struct, not {}",
            root.data_type()
        )));
    }
    Ok((root, is_record_batch))
}

struct Encoder {
    out: Head,
    fields_left: usize,
}

impl Encoder {
    fn field(&mut self, field: &Field, depth_left: usize) -> Result<(), SchemaError> {
        self.fields_left = self.fields_left.checked_sub(1).ok_or(SchemaError::Fields)?;
        let metadata = field.metadata();
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        self.out.push(
            flag(field.is_nullable(), NULLABLE)
                | flag(field.dict_is_ordered() == Some(true), ORDERED_DICTIONARY)
                | flag(!metadata.is_empty(), HAS_METADATA),
        );
        put_bytes(&mut self.out, field.name().as_bytes());
        self.data_type(field.data_type(), depth_left)
            .map_err(|error| match error {
                SchemaError::Type {
                    field: inner,
                    data_type,
                    reason,
                } if inner.is_empty() => SchemaError::Type {
                    field: field.name().clone(),
                    data_type,
                    reason,
                },
                other => other,
            })?;
        if !metadata.is_empty() {
            put_number(&mut self.out, metadata.len() as u64);
            for (key, value) in metadata.iter() {
                put_bytes(&mut self.out, key.as_bytes());
                put_bytes(&mut self.out, value.as_bytes());
            }
        }
        Ok(())
    }

    fn data_type(&mut self, data_type: &DataType, depth_left: usize) -> Result<(), SchemaError> {
        use DataType::*;
        let depth_left = depth_left.checked_sub(1).ok_or(SchemaError::Depth)?;
        check(data_type).map_err(|reason| SchemaError::Type {
            field: String::new(),
            data_type: data_type.clone(),
            reason,
        })?;
        if let Some((code, _)) = PLAIN.iter().find(|(_, plain)| plain == data_type) {
            self.out.push(*code);
            return Ok(());
        }
        self.out.push(parametric_code(data_type));
        match data_type {
            Timestamp(unit, zone) => {
                self.out.push(*unit as u8);
                self.out.push(zone.is_some().into());
                put_bytes(
                    &mut self.out,
                    zone.as_deref().unwrap_or_default().as_bytes(),
                );
            }
            FixedSizeBinary(size) => put_number(&mut self.out, u64::from(size.unsigned_abs())),
            Decimal32(precision, scale)
            | Decimal64(precision, scale)
            | Decimal128(precision, scale)
            | Decimal256(precision, scale) => self
                .out
                .extend_from_slice(&[*precision, scale.cast_unsigned()]),
            List(item) | LargeList(item) | ListView(item) | LargeListView(item) => {
                self.field(item, depth_left)?
            }
            FixedSizeList(item, size) => {
                put_number(&mut self.out, u64::from(size.unsigned_abs()));
                self.field(item, depth_left)?;
            }
            Struct(fields) => {
                put_number(&mut self.out, fields.len() as u64);
                fields
                    .iter()
                    .try_for_each(|field| self.field(field, depth_left))?;
            }
            Union(fields, _) => {
                put_number(&mut self.out, fields.len() as u64);
                for (type_id, field) in fields.iter() {
                    self.out.push(type_id.cast_unsigned());
                    self.field(field, depth_left)?;
                }
            }
            Dictionary(key, value) => {
                self.data_type(key, depth_left)?;
                self.data_type(value, depth_left)?;
            }
            Map(entries, is_sorted) => {
                self.out.push((*is_sorted).into());
                self.field(entries, depth_left)?;
            }
            RunEndEncoded(run_ends, values) => {
                self.field(run_ends, depth_left)?;
                self.field(values, depth_left)?;
            }
            _ => {}
        }
        Ok(())
    }
}

struct Decoder<'a> {
    reader: Reader<'a>,
    fields_left: usize,
}

impl Decoder<'_> {
    fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.reader.byte("flag of the schema")? {
            0 => Ok(false),
            1 => Ok(true),
            code => Err(DecodeError::Code {
                what: "flag of the schema",
                code: code.into(),
            }),
        }
    }

    fn field(&mut self, depth_left: usize) -> Result<Field, DecodeError> {
        self.fields_left = self
            .fields_left
            .checked_sub(1)
            .ok_or_else(|| invalid(SchemaError::Fields.to_string()))?;
        let flags = self.reader.byte("field flags")?;
        if flags & !(NULLABLE | ORDERED_DICTIONARY | HAS_METADATA) != 0 {
            return Err(DecodeError::Code {
                what: "set of field flags",
                code: flags.into(),
            });
        }
        let name = self.reader.text("field name")?;
        let data_type = self.data_type(depth_left)?;
        let mut field = Field::new(name, data_type, flags & NULLABLE != 0);
        if flags & ORDERED_DICTIONARY != 0 {
            field = field.with_dict_is_ordered(true);
        }
        if flags & HAS_METADATA != 0 {
            let mut metadata = Metadata::new();
            for _ in 0..self.reader.count("field metadata", MAX_BYTES)? {
                let key = self.reader.text("key of field metadata")?;
                metadata.insert(key, self.reader.text("value of field metadata")?);
            }
            field.set_metadata(metadata);
        }
        Ok(field)
    }

    fn data_type(&mut self, depth_left: usize) -> Result<DataType, DecodeError> {
        use DataType::*;
        let depth_left = depth_left
            .checked_sub(1)
            .ok_or_else(|| invalid(SchemaError::Depth.to_string()))?;
        let code = self.reader.byte("type of a field")?;
        if let Some((_, plain)) = PLAIN.iter().find(|(known, _)| *known == code) {
            return Ok(plain.clone());
        }
        let data_type = match code {
            code::TIMESTAMP => {
                let unit = self.time_unit()?;
                let has_zone = self.flag()?;
                let zone = self.reader.text("time zone")?;
                Timestamp(unit, has_zone.then(|| zone.into()))
            }
            code::FIXED_SIZE_BINARY => FixedSizeBinary(self.size()?),
            code::DECIMAL32 => self.decimal(Decimal32)?,
            code::DECIMAL64 => self.decimal(Decimal64)?,
            code::DECIMAL128 => self.decimal(Decimal128)?,
            code::DECIMAL256 => self.decimal(Decimal256)?,
            code::LIST => List(self.field(depth_left)?.into()),
            code::LARGE_LIST => LargeList(self.field(depth_left)?.into()),
            code::LIST_VIEW => ListView(self.field(depth_left)?.into()),
            code::LARGE_LIST_VIEW => LargeListView(self.field(depth_left)?.into()),
            code::FIXED_SIZE_LIST => {
                let size = self.size()?;
                FixedSizeList(self.field(depth_left)?.into(), size)
            }
            code::STRUCT => {
                let count = self.reader.count("fields of a struct", MAX_FIELDS)?;
                Struct(
                    (0..count)
                        .map(|_| self.field(depth_left))
                        .collect::<Result<Fields, _>>()?,
                )
            }
            code::SPARSE_UNION => Union(self.union_fields(depth_left)?, UnionMode::Sparse),
            code::DENSE_UNION => Union(self.union_fields(depth_left)?, UnionMode::Dense),
            code::DICTIONARY => {
                let key = self.data_type(depth_left)?;
                Dictionary(key.into(), self.data_type(depth_left)?.into())
            }
            code::MAP => {
                let is_sorted = self.flag()?;
                Map(self.field(depth_left)?.into(), is_sorted)
            }
            code::RUN_END_ENCODED => {
                let run_ends = self.field(depth_left)?;
                RunEndEncoded(run_ends.into(), self.field(depth_left)?.into())
            }
            code => {
                return Err(DecodeError::Code {
                    what: "type of a field",
                    code: code.into(),
                });
            }
        };
        check(&data_type).map_err(|reason| invalid(format!("{data_type}: {reason}")))?;
        Ok(data_type)
    }

    fn time_unit(&mut self) -> Result<TimeUnit, DecodeError> {
        const WHAT: &str = "unit of time";
        const UNITS: [TimeUnit; 4] = [
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ];
        let code = self.reader.byte(WHAT)?;
        UNITS.get(code as usize).copied().ok_or(DecodeError::Code {
            what: WHAT,
            code: code.into(),
        })
    }

    fn size(&mut self) -> Result<i32, DecodeError> {
        const WHAT: &str = "fixed size";
        let found = self.reader.number(WHAT)?;
        i32::try_from(found).map_err(|_| DecodeError::Limit {
            what: WHAT,
            found,
            limit: i32::MAX as u64,
        })
    }

    fn decimal(&mut self, build: fn(u8, i8) -> DataType) -> Result<DataType, DecodeError> {
        let [precision, scale] = self.reader.array("decimal")?;
        Ok(build(precision, scale.cast_signed()))
    }

    fn union_fields(&mut self, depth_left: usize) -> Result<UnionFields, DecodeError> {
        let (mut type_ids, mut fields) = (Vec::new(), Vec::new());
        for _ in 0..self.reader.count("fields of a union", MAX_UNION_FIELDS)? {
            type_ids.push(self.reader.byte("type id")?.cast_signed());
            fields.push(self.field(depth_left)?);
        }
        UnionFields::try_new(type_ids, fields)
            .map_err(|error: ArrowError| invalid(error.to_string()))
    }
}

/// Type ids are `i8` and not negative.
const MAX_UNION_FIELDS: usize = 128;

fn invalid(reason: String) -> DecodeError {
    DecodeError::Invalid {
        what: "schema",
        reason,
    }
}

fn parametric_code(data_type: &DataType) -> u8 {
    use DataType::*;
    match data_type {
        Timestamp(..) => code::TIMESTAMP,
        FixedSizeBinary(_) => code::FIXED_SIZE_BINARY,
        Decimal32(..) => code::DECIMAL32,
        Decimal64(..) => code::DECIMAL64,
        Decimal128(..) => code::DECIMAL128,
        Decimal256(..) => code::DECIMAL256,
        List(_) => code::LIST,
        LargeList(_) => code::LARGE_LIST,
        ListView(_) => code::LIST_VIEW,
        LargeListView(_) => code::LARGE_LIST_VIEW,
        FixedSizeList(..) => code::FIXED_SIZE_LIST,
        Struct(_) => code::STRUCT,
        Union(_, UnionMode::Sparse) => code::SPARSE_UNION,
        Union(_, UnionMode::Dense) => code::DENSE_UNION,
        Dictionary(..) => code::DICTIONARY,
        Map(..) => code::MAP,
        RunEndEncoded(..) => code::RUN_END_ENCODED,
        plain => unreachable!("{plain} is a plain type"),
    }
}

/// Rules of Arrow that `arrow-data` does not check, but panics if they are broken.
fn check(data_type: &DataType) -> Result<(), &'static str> {
    use DataType::*;
    let rule = |holds, rule| if holds { Ok(()) } else { Err(rule) };
    let decimal = |precision: u8, scale: i8, max: u8| {
        rule(
            (1..=max).contains(&precision) && i16::from(scale) <= i16::from(precision),
            "the precision is out of range, or less than the scale",
        )
    };
    match data_type {
        Time32(unit) => rule(
            matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
            "32 bits count s or ms",
        ),
        Time64(unit) => rule(
            matches!(unit, TimeUnit::Microsecond | TimeUnit::Nanosecond),
            "64 bits count us or ns",
        ),
        FixedSizeBinary(size) | FixedSizeList(_, size) => rule(*size >= 0, "the size is negative"),
        Decimal32(precision, scale) => decimal(*precision, *scale, DECIMAL32_MAX_PRECISION),
        Decimal64(precision, scale) => decimal(*precision, *scale, DECIMAL64_MAX_PRECISION),
        Decimal128(precision, scale) => decimal(*precision, *scale, DECIMAL128_MAX_PRECISION),
        Decimal256(precision, scale) => decimal(*precision, *scale, DECIMAL256_MAX_PRECISION),
        Union(fields, _) => rule(
            fields.len() <= MAX_UNION_FIELDS,
            "a union has at most 128 fields",
        ),
        Dictionary(key, _) => rule(
            key.is_dictionary_key_type(),
            "keys of a dictionary are integers",
        ),
        Map(entries, _) => match entries.data_type() {
            Struct(fields) => rule(
                fields.len() == 2 && !fields[0].is_nullable() && !entries.is_nullable(),
                "a map has entries of a key that is never null and a value",
            ),
            _ => Err("a map has entries that are structs"),
        },
        RunEndEncoded(run_ends, _) => rule(
            run_ends.data_type().is_run_ends_type() && !run_ends.is_nullable(),
            "run ends are 16, 32 or 64-bit integers and never null",
        ),
        _ => Ok(()),
    }
}

/// Types without parameters, and types with so few parameters that each variant has a code.
const PLAIN: [(u8, DataType); 32] = {
    use DataType::*;
    use IntervalUnit::*;
    use TimeUnit::*;
    [
        (0, Null),
        (1, Boolean),
        (2, Int8),
        (3, Int16),
        (4, Int32),
        (5, Int64),
        (6, UInt8),
        (7, UInt16),
        (8, UInt32),
        (9, UInt64),
        (10, Float16),
        (11, Float32),
        (12, Float64),
        (13, Date32),
        (14, Date64),
        (15, Time32(Second)),
        (16, Time32(Millisecond)),
        (17, Time64(Microsecond)),
        (18, Time64(Nanosecond)),
        (19, Duration(Second)),
        (20, Duration(Millisecond)),
        (21, Duration(Microsecond)),
        (22, Duration(Nanosecond)),
        (23, Interval(YearMonth)),
        (24, Interval(DayTime)),
        (25, Interval(MonthDayNano)),
        (26, Binary),
        (27, LargeBinary),
        (28, BinaryView),
        (29, Utf8),
        (30, LargeUtf8),
        (31, Utf8View),
    ]
};

/// Codes of types with parameters. A code is never reused.
mod code {
    pub(super) const TIMESTAMP: u8 = 64;
    pub(super) const FIXED_SIZE_BINARY: u8 = 65;
    pub(super) const DECIMAL32: u8 = 66;
    pub(super) const DECIMAL64: u8 = 67;
    pub(super) const DECIMAL128: u8 = 68;
    pub(super) const DECIMAL256: u8 = 69;
    pub(super) const LIST: u8 = 70;
    pub(super) const LARGE_LIST: u8 = 71;
    pub(super) const LIST_VIEW: u8 = 72;
    pub(super) const LARGE_LIST_VIEW: u8 = 73;
    pub(super) const FIXED_SIZE_LIST: u8 = 74;
    pub(super) const STRUCT: u8 = 75;
    pub(super) const SPARSE_UNION: u8 = 76;
    pub(super) const DENSE_UNION: u8 = 77;
    pub(super) const DICTIONARY: u8 = 78;
    pub(super) const MAP: u8 = 79;
    pub(super) const RUN_END_ENCODED: u8 = 80;
}

const NULLABLE: u8 = 1;
const ORDERED_DICTIONARY: u8 = 2;
const HAS_METADATA: u8 = 4;
