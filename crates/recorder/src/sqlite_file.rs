//! Bags of ROS 2 in files of SQLite (`.db3`).
//!
//! The file may come from anywhere. Only plain tables are read, by one statement each, in pieces of
//! bounded size. Views, virtual tables and computed columns could run any program and are refused.
//! SQLite itself checks offsets and sizes, and is given the limit on the size of a value.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcap::records::MessageHeader;
use nervure_types::interface_of;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use crate::channel::{Channel, Channels, MAX_DESCRIPTION_BYTES, Take};
use crate::read_error::{End, Lost, ReadError};
use crate::storage::{FileFacts, Storage, Summary};

/// First bytes of every SQLite file.
pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";
/// Limits of a piece, in bytes of messages and in messages. A larger message gets a piece of its
/// own.
const PIECE_BYTES: u64 = 4 << 20;
const PIECE_MESSAGES: u64 = 10_000;

/// A database whose messages have been scanned.
#[derive(Debug)]
pub(crate) struct SqliteFile {
    facts: FileFacts,
    connection: Mutex<Connection>,
    /// By the topic ids of the file.
    channels: HashMap<i64, (u16, Arc<Channel>)>,
    pieces: Vec<Piece>,
    summary: Summary,
}

/// The unit of reading: a range of rows.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first_row: i64,
    last_row: i64,
    start: u64,
    end: u64,
    messages: u64,
    bytes: u64,
}

impl SqliteFile {
    /// Opens the file at `place`. Messages to users call it `path`. Values may have at most
    /// `max_bytes`.
    pub(crate) fn open(path: &Path, place: &Path, max_bytes: usize) -> Result<Self, ReadError> {
        let bytes = std::fs::metadata(place)
            .map_err(|source| ReadError::Io {
                path: path.to_owned(),
                source,
            })?
            .len();
        let failed = |error: rusqlite::Error| ReadError::NotBag {
            path: path.to_owned(),
            what: error.to_string(),
        };
        let connection = connect(place, max_bytes).map_err(failed)?;
        let not_bag = |what: String| ReadError::NotBag {
            path: path.to_owned(),
            what,
        };
        for table in ["topics", "messages"] {
            if !is_plain_table(&connection, table).map_err(failed)? {
                return Err(not_bag(format!("it has no table `{table}`")));
            }
        }
        let mut file = Self {
            facts: FileFacts {
                path: path.to_owned(),
                bytes,
                end: End::Complete,
                library: String::new(),
            },
            channels: read_channels(&connection)
                .map_err(failed)?
                .map_err(not_bag)?,
            connection: Mutex::new(connection),
            pieces: Vec::new(),
            summary: Summary::default(),
        };
        file.facts.library = file.distribution().unwrap_or_default();
        if let Err(error) = file.scan() {
            let messages: u64 = file.pieces.iter().map(|piece| piece.messages).sum();
            let what =
                format!("{error}; what follows its first {messages} messages cannot be read");
            file.facts.end = End::CutShort { at: bytes, what };
        }
        Ok(file)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The ROS 2 distribution, such as `ROS 2 humble`. Only files of later versions name it.
    fn distribution(&self) -> Option<String> {
        let connection = self.connection();
        if !is_plain_table(&connection, "schema").ok()? {
            return None;
        }
        let name: String = connection
            .query_row("SELECT ros_distro FROM schema LIMIT 1", [], |row| {
                row.get(0)
            })
            .ok()?;
        (name.len() <= 64).then(|| format!("ROS 2 {name}"))
    }

    /// Divides the messages into pieces. Reads their sizes, not their contents.
    fn scan(&mut self) -> Result<(), rusqlite::Error> {
        let Self {
            connection,
            channels,
            pieces,
            summary,
            ..
        } = self;
        let connection = connection.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (id, channel) in channels.values() {
            summary.channels.insert(*id, channel.clone());
            summary.messages.insert(*id, 0);
        }
        let mut times: Option<(u64, u64)> = None;
        let mut statement = connection.prepare(
            "SELECT rowid, topic_id, timestamp, length(data) FROM messages NOT INDEXED ORDER BY rowid",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (number, topic) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?);
            let time = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
            let bytes = row
                .get::<_, Option<i64>>(3)?
                .and_then(|bytes| u64::try_from(bytes).ok())
                .unwrap_or(0);
            if let Some((id, _)) = channels.get(&topic) {
                *summary.messages.entry(*id).or_default() += 1;
                let (first, last) = times.unwrap_or((time, time));
                times = Some((first.min(time), last.max(time)));
            }
            match pieces.last_mut() {
                Some(last)
                    if last.bytes + bytes <= PIECE_BYTES && last.messages < PIECE_MESSAGES =>
                {
                    last.last_row = number;
                    last.start = last.start.min(time);
                    last.end = last.end.max(time);
                    last.messages += 1;
                    last.bytes += bytes;
                }
                _ => pieces.push(Piece {
                    first_row: number,
                    last_row: number,
                    start: time,
                    end: time,
                    messages: 1,
                    bytes,
                }),
            }
            summary.times = times.unwrap_or_default();
        }
        Ok(())
    }

    fn read_rows(
        &self,
        piece: Piece,
        handed_out: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<(), String> {
        let text = |error: rusqlite::Error| error.to_string();
        let connection = self.connection();
        let mut statement = connection
            .prepare(
                "SELECT rowid, topic_id, timestamp, data FROM messages WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid",
            )
            .map_err(text)?;
        let mut rows = statement
            .query([piece.first_row, piece.last_row])
            .map_err(text)?;
        let mut strange = None;
        while let Some(row) = rows.next().map_err(text)? {
            let topic = row.get::<_, i64>(1).map_err(text)?;
            let time = row.get::<_, i64>(2).map_err(text)?;
            match (self.channels.get(&topic), row.get_ref(3).map_err(text)?) {
                (Some((id, channel)), ValueRef::Blob(data)) => {
                    *handed_out += 1;
                    let time = u64::try_from(time).unwrap_or(0);
                    let header = MessageHeader {
                        channel_id: *id,
                        sequence: 0,
                        log_time: time,
                        publish_time: time,
                    };
                    take(*id, channel, header, data);
                }
                (None, _) => {
                    strange = Some(format!(
                        "a message of topic {topic}, which is not described"
                    ))
                }
                (_, other) => {
                    strange = Some(format!(
                        "a message of type {}, expected a blob",
                        other.data_type()
                    ))
                }
            }
        }
        strange.map_or(Ok(()), Err)
    }
}

impl Storage for SqliteFile {
    fn facts(&self) -> &FileFacts {
        &self.facts
    }

    fn metadata(&self, _: &str) -> Option<&BTreeMap<String, String>> {
        None
    }

    fn summary(&self) -> Option<&Summary> {
        Some(&self.summary)
    }

    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn start_of(&self, piece: usize) -> u64 {
        self.pieces[piece].start
    }

    fn read(&self, piece: usize, _: &mut Channels, take: &mut Take<'_>) -> Result<(), ReadError> {
        let piece = self.pieces[piece];
        let mut handed_out = 0;
        self.read_rows(piece, &mut handed_out, take)
            .map_err(|what| ReadError::DamagedRows {
                path: self.facts.path.clone(),
                first: piece.first_row,
                last: piece.last_row,
                what,
                lost: Lost {
                    messages: Some(piece.messages.saturating_sub(handed_out)),
                    nanos: (handed_out == 0).then(|| piece.end - piece.start),
                },
            })
    }
}

/// Opens a file read-only, with everything disabled that content of the file could trigger.
fn connect(place: &Path, max_bytes: usize) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let has_journal = |end: &str| {
        let mut name = place.as_os_str().to_owned();
        name.push(end);
        std::fs::metadata(name).is_ok_and(|file| file.len() > 0)
    };
    // As `immutable`, SQLite creates no files beside the database. A bag without a journal can
    // therefore lie on a read-only disk.
    let connection = match (
        has_journal("-wal") || has_journal("-journal"),
        immutable_uri(place),
    ) {
        (false, Some(uri)) => Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?,
        _ => Connection::open_with_flags(place, flags)?,
    };
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_limit(
        Limit::SQLITE_LIMIT_LENGTH,
        i32::try_from(max_bytes).unwrap_or(i32::MAX),
    )?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(connection)
}

fn immutable_uri(place: &Path) -> Option<String> {
    let mut uri = "file:".to_owned();
    for byte in std::path::absolute(place).ok()?.to_str()?.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                uri.push(char::from(byte))
            }
            byte => uri += &format!("%{byte:02X}"),
        }
    }
    Some(uri + "?immutable=1")
}

/// Whether `name` is an ordinary table without computed columns.
fn is_plain_table(connection: &Connection, name: &str) -> Result<bool, rusqlite::Error> {
    let sql = "SELECT type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' FROM sqlite_schema WHERE name = ?1 LIMIT 1";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([name])?;
    let Some(row) = rows.next()? else {
        return Ok(false);
    };
    if !row.get::<_, bool>(0)? {
        return Ok(false);
    }
    let mut statement =
        connection.prepare("SELECT count(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0")?;
    Ok(statement.query_row([name], |row| row.get::<_, i64>(0))? == 0)
}

/// Encoding and text of the definition of each message type.
type Definitions = HashMap<String, (String, Arc<[u8]>)>;

type ReadChannels = HashMap<i64, (u16, Arc<Channel>)>;

fn read_channels(connection: &Connection) -> Result<Result<ReadChannels, String>, rusqlite::Error> {
    let definitions = read_definitions(connection)?;
    let mut channels = HashMap::new();
    let mut bytes = 0;
    let mut statement = connection
        .prepare("SELECT id, name, type, serialization_format FROM topics ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, topic, schema_name) = (
            row.get::<_, i64>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
        );
        let message_encoding: String = row.get(3)?;
        let Ok(number) = u16::try_from(channels.len()) else {
            return Ok(Err("it has more than 65,536 topics".to_owned()));
        };
        // Bags of Humble and earlier releases contain no definitions. Those of generated types are
        // stored under the name of their service or action.
        let definition = definitions
            .get(&schema_name)
            .or_else(|| definitions.get(interface_of(&schema_name)));
        let (schema_encoding, schema) = match definition {
            Some((encoding, definition)) => (encoding.clone(), definition.clone()),
            None => (String::new(), [].into()),
        };
        bytes += topic.len() + schema_name.len() + message_encoding.len() + schema.len();
        if bytes > MAX_DESCRIPTION_BYTES {
            return Ok(Err(format!(
                "its topics' descriptions take more than {MAX_DESCRIPTION_BYTES} bytes"
            )));
        }
        let channel = Channel {
            topic,
            message_encoding,
            schema_name,
            schema_encoding,
            schema,
            metadata: BTreeMap::new(),
        };
        channels.insert(id, (number, Arc::new(channel)));
    }
    Ok(Ok(channels))
}

fn read_definitions(connection: &Connection) -> Result<Definitions, rusqlite::Error> {
    let mut definitions = HashMap::new();
    if !is_plain_table(connection, "message_definitions")? {
        return Ok(definitions);
    }
    let mut bytes = 0;
    let mut statement = connection.prepare(
        "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (name, encoding, text) = (
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
        );
        bytes += name.len() + encoding.len() + text.len();
        if bytes > MAX_DESCRIPTION_BYTES {
            break;
        }
        definitions.insert(name, (encoding, text.into_bytes().into()));
    }
    Ok(definitions)
}
