//! Bags of ROS 2 as folders, in SQLite, split and compressed. Bags written by other programs are
//! tested with `tests/test_bags.py`.

use std::path::Path;

use nervure_recorder::{DefinitionOrigin, Definitions, End, Message, Recording, SampleChannel};
use rusqlite::Connection;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

const TIME: i64 = 1_700_000_000_000_000_000;

/// Writes a file as Humble does, without message definitions. Messages are texts, one per
/// millisecond.
fn write_db3(path: &Path, numbers: std::ops::Range<i64>, message: impl Fn(i64) -> Vec<u8>) {
    let connection = Connection::open(path).unwrap();
    let tables = "PRAGMA page_size = 512;
        CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
            serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL);
        CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,
            data BLOB NOT NULL);
        CREATE INDEX timestamp_idx ON messages (timestamp ASC);
        INSERT INTO topics VALUES(3, '/chatter', 'std_msgs/msg/String', 'cdr', '');
        BEGIN;";
    connection.execute_batch(tables).unwrap();
    for number in numbers {
        let sql = "INSERT INTO messages(topic_id, timestamp, data) VALUES(3, ?1, ?2)";
        connection
            .execute(sql, (TIME + number * 1_000_000, message(number)))
            .unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
}

/// `std_msgs/String` in CDR.
fn text(number: i64) -> Vec<u8> {
    let text = format!("hello {number}\0");
    [
        &[0, 1, 0, 0],
        &(text.len() as u32).to_le_bytes()[..],
        text.as_bytes(),
    ]
    .concat()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn write_metadata(folder: &Path, files: &[&str]) {
    let files: String = files.iter().map(|file| format!("    - {file}\n")).collect();
    let text =
        format!("rosbag2_bagfile_information:\n  version: 5\n  relative_file_paths:\n{files}");
    std::fs::write(folder.join("metadata.yaml"), text).unwrap();
}

fn texts(recording: &Recording) -> Vec<String> {
    let text = |message: Message| {
        let channel = SampleChannel::new(&message.channel).unwrap();
        let sample = channel.sample(&message).unwrap();
        String::from_utf8(sample.payload().to_vec()).unwrap()
    };
    recording
        .messages()
        .map(|message| text(message.unwrap()))
        .collect()
}

fn expected(numbers: std::ops::Range<i64>) -> Vec<String> {
    numbers.map(|number| format!("hello {number}")).collect()
}

#[test]
fn a_split_bag_is_one_recording_with_any_compression() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    write_db3(&file("bag_0.db3"), 0..40, text);
    write_db3(&file("bag_1.db3"), 40..70, |number| packed(&text(number)));
    write_db3(&file("bag_2.db3"), 70..100, text);
    std::fs::write(
        file("bag_2.db3.zstd"),
        packed(&std::fs::read(file("bag_2.db3")).unwrap()),
    )
    .unwrap();
    std::fs::remove_file(file("bag_2.db3")).unwrap();
    // One name includes the folder, as in early versions; one is the name before compression.
    write_metadata(folder.path(), &["bag_0.db3", "bag/bag_1.db3", "bag_2.db3"]);
    let recording = Recording::open(folder.path()).unwrap();
    assert_eq!(texts(&recording), expected(0..100));
    assert_eq!(recording.end(), &End::Complete);
    for overview in [recording.overview(), recording.checked_overview()] {
        let topic = &overview.topics[0];
        assert_eq!(
            (topic.topic.as_str(), topic.messages, topic.missing),
            ("/chatter", 100, 0)
        );
        assert_eq!(topic.becomes, ["text"]);
        assert_eq!(
            overview.times,
            Some((TIME as u64, TIME as u64 + 99_000_000))
        );
        assert!(overview.damaged.is_empty(), "{:?}", overview.damaged);
    }
    assert_eq!(
        texts(&Recording::open(&file("bag_0.db3")).unwrap()),
        expected(0..40)
    );
}

#[test]
fn errors_name_what_a_bag_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let said = || Recording::open(folder.path()).unwrap_err().to_string();
    let nothing = "and the folder has no recordings (.mcap, .db3)";
    assert!(
        said().contains(&format!("it has no metadata.yaml, {nothing}")),
        "{}",
        said()
    );
    write_metadata(folder.path(), &["bag_0.db3"]);
    let missing = format!("its metadata.yaml names no file that is in the folder, {nothing}");
    assert!(said().contains(&missing), "{}", said());
    write_metadata(folder.path(), &[]);
    assert!(
        said().contains("`relative_file_paths` is missing or empty"),
        "{}",
        said()
    );
    write_metadata(folder.path(), &["bag_0.db3"]);
    std::fs::write(folder.path().join("bag_0.db3"), "no database").unwrap();
    assert!(
        said().contains("bag_0.db3 is not a recording: it begins with \"no data"),
        "{}",
        said()
    );
    let lz4 =
        "rosbag2_bagfile_information: {compression_format: lz4, relative_file_paths: [bag_0.db3]}";
    std::fs::write(folder.path().join("metadata.yaml"), lz4).unwrap();
    assert!(
        said().contains("it is compressed with \"lz4\", only zstd is read"),
        "{}",
        said()
    );
}

#[test]
fn the_folder_of_a_killed_recorder_is_read_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    for number in 0..12 {
        let name = format!("bag_{number}.db3");
        write_db3(&file(&name), number * 5..number * 5 + 5, text);
    }
    std::fs::write(file("bag_12.db3"), "").unwrap();
    std::fs::write(file("notes.txt"), "x").unwrap();
    let no_files = "rosbag2_bagfile_information: {version: 5}";
    for metadata in [None, Some(""), Some(no_files), Some("[")] {
        if let Some(text) = metadata {
            std::fs::write(file("metadata.yaml"), text).unwrap();
        }
        let recording = Recording::open(folder.path()).unwrap();
        assert_eq!(texts(&recording), expected(0..60));
        let [note] = recording.notes() else {
            panic!("{:?}", recording.notes())
        };
        let order = "its files are read in the order of their names, bag_0.db3 to bag_12.db3";
        assert!(
            note.contains("metadata.yaml") && note.ends_with(order),
            "{note}"
        );
        let [left_out] = recording.left_out() else {
            panic!("{:?}", recording.left_out())
        };
        assert!(
            left_out.ends_with("bag_12.db3 is not a recording: it is empty"),
            "{left_out}"
        );
    }
}

#[test]
fn files_that_metadata_and_folder_do_not_share_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write_db3(&folder.path().join("bag_0.db3"), 0..5, text);
    write_db3(&folder.path().join("bag_2.db3"), 5..10, text);
    write_metadata(folder.path(), &["bag_0.db3", "bag_1.db3"]);
    let recording = Recording::open(folder.path()).unwrap();
    assert_eq!(texts(&recording), expected(0..5));
    let [missing, not_listed] = recording.left_out() else {
        panic!("{:?}", recording.left_out())
    };
    assert!(
        missing.ends_with("metadata.yaml names \"bag_1.db3\", which is not in the folder"),
        "{missing}"
    );
    assert!(
        not_listed.ends_with("bag_2.db3 is not listed in metadata.yaml, and not read"),
        "{not_listed}"
    );
    assert_eq!(recording.notes(), [""; 0]);
}

#[test]
fn several_recordings_are_played_as_one_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["late", "even", "odd"].map(|name| folder.path().join(format!("{name}.db3")));
    write_db3(&paths[0], 40_000..40_010, text);
    // Two pieces in each file, interleaved with those of the other.
    let of = |odd| move |number| text(2 * number + odd);
    write_db3(&paths[1], 0..15_000, of(0));
    write_db3(&paths[2], 0..15_000, of(1));
    // Half a millisecond later than the even ones.
    let connection = Connection::open(&paths[2]).unwrap();
    connection
        .execute_batch("UPDATE messages SET timestamp = timestamp + 500000")
        .unwrap();
    let recording = Recording::open_all(&paths).unwrap();
    let all = [expected(0..30_000), expected(40_000..40_010)].concat();
    assert!(texts(&recording) == all);
    assert!(
        recording.name().ends_with("late.db3 and 2 more"),
        "{}",
        recording.name()
    );
    let error = Recording::open_all(&[&paths[0], &folder.path().join("none.db3")]);
    assert!(error.unwrap_err().to_string().contains("none.db3"));
}

#[test]
fn damage_of_a_database_is_reported_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bag_0.db3");
    write_db3(&path, 0..2000, text);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    match Recording::open(&path) {
        Err(error) => assert!(error.to_string().contains("malformed"), "{error}"),
        Ok(recording) => {
            let End::CutShort { what, .. } = recording.end() else {
                panic!("half of the file is not the whole file")
            };
            assert!(
                what.contains("malformed") && what.contains("cannot be read"),
                "{what}"
            );
        }
    }
    // Compressed messages, one of them damaged.
    let damaged = |number| match packed(&text(number)) {
        mut bytes if number == 7 => {
            bytes.truncate(9);
            bytes
        }
        bytes => bytes,
    };
    let path = folder.path().join("bag_1.db3");
    write_db3(&path, 0..20, damaged);
    let recording = Recording::open(&path).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = recording.messages().partition(Result::is_ok);
    assert_eq!((good.len(), bad.len()), (19, 1));
    let error = bad[0].as_ref().unwrap_err().to_string();
    assert!(
        error.contains("bag_1.db3: messages cannot be unpacked: ")
            && error.ends_with("1 messages are lost"),
        "{error}"
    );
    let overview = recording.checked_overview();
    assert_eq!((overview.topics[0].missing, overview.damaged.len()), (1, 1));
}

#[test]
fn the_journal_of_a_killed_recorder_is_read() {
    let (folder, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("bag_0.db3");
    write_db3(&path, 0..10, text);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("PRAGMA journal_mode = WAL")
        .unwrap();
    let sql = "INSERT INTO messages(topic_id, timestamp, data) VALUES(3, ?1, ?2)";
    connection
        .execute(sql, (TIME + 10_000_000, text(10)))
        .unwrap();
    for name in ["bag_0.db3", "bag_0.db3-wal"] {
        std::fs::copy(folder.path().join(name), killed.path().join(name)).unwrap();
    }
    let recording = Recording::open(&killed.path().join("bag_0.db3")).unwrap();
    assert_eq!(texts(&recording), expected(0..11));
}

#[test]
fn databases_with_computed_tables_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let topics = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);";
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, 1 AS topic_id, \
                   i AS timestamp, zeroblob(1000000000) AS data FROM n";
    for (number, messages) in [
        format!("CREATE VIEW messages AS {endless}"),
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id, timestamp, data AS (zeroblob(1000000000)))"
            .to_owned(),
        String::new(),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(format!("bag_{number}.db3"));
        Connection::open(&path).unwrap().execute_batch(&format!("{topics}{messages}")).unwrap();
        let error = Recording::open(&path).unwrap_err().to_string();
        assert!(error.ends_with(".db3: it has no table `messages`"), "{error}");
    }
    // One value exceeds the reader's limit of 50,000 bytes.
    let path = folder.path().join("large.db3");
    write_db3(&path, 0..3, |number| {
        vec![0; 5 + 100_000 * usize::from(number == 1)]
    });
    let recording = Recording::open_within(&path, 50_000).unwrap();
    let errors: Vec<_> = recording
        .messages()
        .filter_map(Result::err)
        .map(|error| error.to_string())
        .collect();
    assert!(
        errors.len() == 1 && errors[0].contains("too big"),
        "{errors:?}"
    );
}

#[test]
fn messages_keep_their_order_where_the_clock_was_set_back() {
    const HOUR: i64 = 3_600_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bag_0.db3");
    write_db3(&path, 0..100, text);
    let connection = Connection::open(&path).unwrap();
    // Two topics in turn; from the 51st message on, both are an hour earlier.
    connection
        .execute_batch(&format!(
            "INSERT INTO topics VALUES(4, '/other', 'std_msgs/msg/String', 'cdr', '');
             UPDATE messages SET topic_id = 4 WHERE id % 2 = 0;
             UPDATE messages SET timestamp = timestamp - {HOUR} WHERE id > 51"
        ))
        .unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(texts(&recording), expected(0..100));
    let messages: Vec<_> = recording.messages().map(Result::unwrap).collect();
    let set_back: Vec<u64> = messages.iter().map(|message| message.set_back).collect();
    assert_eq!(set_back[..51], [0; 51]);
    assert!(
        set_back[52..]
            .iter()
            .all(|back| back.abs_diff(HOUR as u64) < 10_000_000)
    );
    let times: Vec<u64> = messages.iter().map(Message::time).collect();
    let last = times[99] - times[0];
    assert!((90_000_000..110_000_000).contains(&last), "{last} ns");
}

/// The definition of `a/msg/Own`, in a folder as ROS installs it.
fn write_own(folder: &Path, text: &str) {
    let package = folder.join("share/a/msg");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("Own.msg"), text).unwrap();
}

#[test]
fn definitions_of_a_folder_come_before_others_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bag_0.db3");
    write_db3(&path, 0..3, text);
    let mut recording = Recording::open(&path).unwrap();
    let origins = |recording: &Recording| recording.overview().topics[0].definitions.clone();
    assert_eq!(origins(&recording), [DefinitionOrigin::Humble]);
    let connection = Connection::open(&path).unwrap();
    let set_type = |name: &str| {
        connection
            .execute("UPDATE topics SET type = ?1", [name])
            .unwrap();
    };
    set_type("a/msg/Own");
    let read = |definitions: Definitions| {
        let mut recording = Recording::open(&path).unwrap();
        recording.define(definitions);
        let message = recording.messages().next().unwrap().unwrap();
        let samples = recording.samples_of(&message.channel)?;
        samples
            .sample(&message)
            .map(|sample| sample.payload().to_vec())
    };
    let error = read(Definitions::default()).unwrap_err().to_string();
    assert!(error.contains("no definition of a/Own"), "{error}");
    let mut definitions = Definitions::default();
    write_own(folder.path(), "string data # as that of std_msgs");
    definitions.add_folder(folder.path()).unwrap();
    assert_eq!(read(definitions.clone()).unwrap(), b"hello 0");
    // Another file of the same type must say the same.
    let other = folder.path().join("a/Own.msg");
    std::fs::create_dir(folder.path().join("a")).unwrap();
    std::fs::write(&other, "string text").unwrap();
    let error = Definitions::default()
        .add_folder(folder.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("a/Own is defined twice"), "{error}");
    std::fs::remove_file(other).unwrap();
    // A definition that does not fit is named in the error.
    write_own(folder.path(), "float64[4] data");
    let mut wrong = Definitions::default();
    wrong.add_folder(&folder.path().join("share/a")).unwrap();
    let error = read(wrong).unwrap_err().to_string();
    assert!(
        error.ends_with("(the definition used is that of the given files)"),
        "{error}"
    );
    recording.define(definitions);
    assert_eq!(origins(&recording), [DefinitionOrigin::Humble]);
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let error = Definitions::default()
        .add_folder(&empty)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("empty has no .msg, .srv or .action files"),
        "{error}"
    );
}
