//! The binding to etcd, by its gateway for HTTP and JSON.
//!
//! The gateway is part of every etcd since 3.4. A client for gRPC would bring a second HTTP stack
//! (tonic) and a compiler for its protocol (protoc) for five calls.
//!
//! | call | etcd |
//! |---|---|
//! | get, list | range |
//! | compare and set | a transaction that compares `mod_revision`, which is 0 for an absent key |
//! | watch | a watch of all keys: each revision has an event, so it is known when all have arrived |
//! | lease | grant, keep alive, revoke; whole seconds, at least the minimum of etcd's election timeout |
//!
//! Other programs may use the same etcd: keys have a prefix. A lease keeps the lifetime that it began
//! with.
//!
//! With the addresses of several members, a call goes to the next one if it could not be sent; if it was
//! sent and has no answer, only reads are repeated there. A write may have happened: it fails, and the
//! next call goes to the next member. All members give the same answers: reads are linearizable.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nervure_http::{Answer, Connection, Request, header};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::engine::check_sizes;
use crate::{
    Change, Changes, Entry, Epoch, Expected, LeaseId, Listing, Revision, Store, StoreError,
};

/// Time limit for an answer that waits for no change. It outlasts the election of a leader,
/// which etcd begins after 1 s by default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest answer, in bytes: a list of all entries, in base64.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The largest event of a watch, in bytes.
const MAX_EVENT_BYTES: usize = 64 << 20;

/// A store in etcd.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<SocketAddr>,
    /// The member that is asked, by its place.
    asked: AtomicUsize,
    prefix: String,
    runtime: Runtime,
}

type Failed<T> = Result<T, StoreError>;

/// Why an exchange with a member had no result.
enum Fault {
    /// It was not sent.
    NotSent(StoreError),
    /// The member did not answer, or cannot do it now. It may have happened.
    NotAnswered(StoreError),
    /// Every member would answer this.
    Answered(StoreError),
    /// As [`Fault::Answered`]: an object of the request does not exist, which can only be its lease.
    NotFound(StoreError),
}

/// The status of gRPC for a missing object, in the `code` of an answer. Of the objects in these requests,
/// only leases can have it (etcd, `api/v3rpc/rpctypes/error.go`).
const NOT_FOUND: u64 = 5;

impl From<nervure_http::Error> for Fault {
    fn from(error: nervure_http::Error) -> Self {
        match error.was_sent() {
            true => Self::NotAnswered(unavailable(&error)),
            false => Self::NotSent(unavailable(&error)),
        }
    }
}

impl Fault {
    fn into_error(self) -> StoreError {
        let (Self::NotSent(error)
        | Self::NotAnswered(error)
        | Self::Answered(error)
        | Self::NotFound(error)) = self;
        error
    }

    /// The error of a request that named this lease.
    fn of_lease(self, lease: Option<LeaseId>) -> StoreError {
        match (self, lease) {
            (Self::NotFound(_), Some(lease)) => StoreError::NoLease(lease),
            (fault, _) => fault.into_error(),
        }
    }
}

/// Connects to etcd by the addresses of some of its members, and looks whether one answers. Keys have
/// the prefix there. The connections are not encrypted, so that the addresses have to be of this host.
///
/// # Errors
/// [`StoreError::Refused`] without an address and for one of another host, [`StoreError::Unavailable`].
pub fn etcd(members: &[SocketAddr], prefix: &str) -> Result<Etcd, StoreError> {
    if members.is_empty() {
        return Err(StoreError::Refused("etcd needs an address".to_owned()));
    }
    if let Some(address) = members.iter().find(|address| !address.ip().is_loopback()) {
        return Err(StoreError::Refused(format!(
            "the connection to etcd is not encrypted, and {address} is not on this host: run a member of etcd here, or a tunnel to one"
        )));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("nervure-etcd")
        .enable_all()
        .build()
        .map_err(|error| unavailable(&error))?;
    let store = Etcd {
        members: members.to_vec(),
        asked: AtomicUsize::new(0),
        prefix: prefix.to_owned(),
        runtime,
    };
    store.revision()?;
    Ok(store)
}

impl Etcd {
    fn revision(&self) -> Failed<(Epoch, Revision)> {
        let range = json!({"key": BASE64.encode(&self.prefix), "count_only": true});
        let answer = self.read("kv/range", &range)?;
        Ok((epoch_of(&answer)?, revision_of(&answer)?))
    }

    /// A call that changes nothing, or nothing more if it is repeated.
    fn read(&self, path: &str, body: &Value) -> Failed<Value> {
        self.read_leased(path, body, None)
    }

    /// As [`Etcd::read`], of a lease.
    fn read_leased(&self, path: &str, body: &Value, lease: Option<LeaseId>) -> Failed<Value> {
        self.call(path, body, |_| true)
            .map_err(|fault| fault.of_lease(lease))
    }

    /// A call that must not happen twice, and may name a lease.
    fn write(&self, path: &str, body: &Value, lease: Option<LeaseId>) -> Failed<Value> {
        self.call(path, body, |fault| matches!(fault, Fault::NotSent(_)))
            .map_err(|fault| fault.of_lease(lease))
    }

    /// Asks each member at most once, as long as a fault permits the next.
    fn call(
        &self,
        path: &str,
        body: &Value,
        may_repeat: impl Fn(&Fault) -> bool,
    ) -> Result<Value, Fault> {
        let mut left = self.members.len();
        loop {
            let asked = self.asked.load(Ordering::Relaxed);
            let fault = match self.runtime.block_on(self.exchange(asked, path, body)) {
                Ok(value) => return Ok(value),
                Err(fault @ (Fault::Answered(_) | Fault::NotFound(_))) => return Err(fault),
                Err(fault) => fault,
            };
            self.leave(asked);
            left -= 1;
            if left == 0 || !may_repeat(&fault) {
                return Err(fault);
            }
        }
    }

    /// Turns to the member after this one, unless another thread has.
    fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.asked.compare_exchange(member, next, success, failure);
    }

    async fn exchange(&self, member: usize, path: &str, body: &Value) -> Result<Value, Fault> {
        let exchange = async {
            let answer = self.send(member, path, body).await?;
            let status = answer.status;
            let bytes = answer.bytes(MAX_ANSWER_BYTES).await?;
            let value: Value = serde_json::from_slice(&bytes)
                .map_err(|error| Fault::NotAnswered(unavailable(&error)))?;
            if status.is_success() {
                return Ok(value);
            }
            let why = unavailable(&value["error"].as_str().unwrap_or("it failed"));
            Err(match value["code"].as_u64() {
                Some(NOT_FOUND) => Fault::NotFound(why),
                _ if status.is_server_error() => Fault::NotAnswered(why),
                _ => Fault::Answered(why),
            })
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await;
        answer.unwrap_or_else(|_| Err(Fault::NotAnswered(unavailable(&"it does not answer"))))
    }

    /// Uses a new connection: a call takes a fraction of a millisecond more on one host, and no state of
    /// connections is kept.
    async fn send(&self, member: usize, path: &str, body: &Value) -> Result<Answer, Fault> {
        let address = self.members[member];
        let mut connection = Connection::open(address).await?;
        let request = Request::post(format!("/v3/{path}"))
            .header(header::HOST, address.to_string())
            .body(body.to_string().into())
            .expect("the path is valid");
        Ok(connection.send(request).await?)
    }

    fn key(&self, key: &str) -> String {
        BASE64.encode(format!("{}{key}", self.prefix))
    }

    fn entry(&self, found: &Value) -> Failed<Entry> {
        let key = text(&found["key"])?;
        let own = key.strip_prefix(&self.prefix);
        let lease = number(&found["lease"])?;
        Ok(Entry {
            key: own.ok_or_else(|| unexpected("a key of others"))?.to_owned(),
            value: bytes(&found["value"])?,
            revision: Revision(number(&found["mod_revision"])?),
            lease: (lease != 0).then_some(LeaseId(lease)),
        })
    }

    /// The change of an event, if it is of this store and below the prefix.
    fn change(&self, event: &Value, prefix: &str) -> Failed<Option<Change>> {
        let found = &event["kv"];
        let key = bytes(&found["key"])?;
        let below = format!("{}{prefix}", self.prefix);
        if !key.starts_with(below.as_bytes()) {
            return Ok(None);
        }
        let key = String::from_utf8(key).map_err(|_| unexpected("a key that is not UTF-8"))?;
        let is_removed = event["type"] == "DELETE";
        Ok(Some(Change {
            key: key[self.prefix.len()..].to_owned(),
            revision: Revision(number(&found["mod_revision"])?),
            entry: match is_removed {
                true => None,
                false => Some(self.entry(found)?),
            },
        }))
    }

    /// Follows all keys from a revision on, until all up to `until` have arrived and one is below the
    /// prefix, or the time is over. If the member fails, the next watch asks the next one.
    async fn follow(
        &self,
        prefix: &str,
        after: Revision,
        until: Revision,
        deadline: tokio::time::Instant,
    ) -> Failed<Changes> {
        let asked = self.asked.load(Ordering::Relaxed);
        let followed = self.follow_at(asked, prefix, after, until, deadline).await;
        if matches!(followed, Err(StoreError::Unavailable(_))) {
            self.leave(asked);
        }
        followed
    }

    async fn follow_at(
        &self,
        member: usize,
        prefix: &str,
        after: Revision,
        until: Revision,
        deadline: tokio::time::Instant,
    ) -> Failed<Changes> {
        // The range of all keys.
        let create = json!({"create_request": {
            "key": BASE64.encode([0]), "range_end": BASE64.encode([0]), "start_revision": (after.0 + 1).to_string(),
        }});
        let mut changes = Changes {
            epoch: Epoch::default(),
            revision: after,
            changes: Vec::new(),
        };
        let patience = tokio::time::Instant::now() + ANSWER_TIMEOUT;
        let timed_out = || Err(unavailable(&"it does not answer"));
        let Ok(opened) =
            tokio::time::timeout_at(patience, self.send(member, "watch", &create)).await
        else {
            return timed_out();
        };
        let mut answer = opened.map_err(Fault::into_error)?;
        let mut line = Vec::new();
        while changes.revision < until || changes.changes.is_empty() {
            let is_behind = changes.revision < until;
            let limit = if is_behind {
                patience.max(deadline)
            } else {
                deadline
            };
            let piece = match tokio::time::timeout_at(limit, answer.piece()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Err(unavailable(&"it has ended a watch")),
                Ok(Err(error)) => return Err(unavailable(&error)),
                Err(_) if is_behind => return timed_out(),
                Err(_) => break,
            };
            line.extend(piece);
            if line.len() > MAX_EVENT_BYTES {
                return Err(unexpected("an event that is too large"));
            }
            while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                let rest = line.split_off(end + 1);
                let message = std::mem::replace(&mut line, rest);
                self.take(&message, prefix, after, &mut changes)?;
            }
        }
        Ok(changes)
    }

    /// Takes a message of a watch.
    fn take(
        &self,
        message: &[u8],
        prefix: &str,
        after: Revision,
        changes: &mut Changes,
    ) -> Failed<()> {
        let message: Value =
            serde_json::from_slice(message).map_err(|error| unexpected(&error.to_string()))?;
        let result = &message["result"];
        let oldest = number(&result["compact_revision"])?;
        if oldest != 0 {
            return Err(StoreError::Compacted {
                after,
                oldest: Revision(oldest),
            });
        }
        if result["canceled"] == true || !message["error"].is_null() {
            return Err(unexpected("a watch that is refused"));
        }
        for event in result["events"].as_array().into_iter().flatten() {
            changes.changes.extend(self.change(event, prefix)?);
            let revision = Revision(number(&event["kv"]["mod_revision"])?);
            changes.revision = changes.revision.max(revision);
        }
        Ok(())
    }
}

impl Store for Etcd {
    fn get(&self, key: &str) -> Failed<Option<Entry>> {
        let answer = self.read("kv/range", &json!({"key": self.key(key)}))?;
        let found = answer["kvs"].as_array().and_then(|found| found.first());
        found.map(|found| self.entry(found)).transpose()
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Expected,
        value: Option<&[u8]>,
        lease: Option<LeaseId>,
    ) -> Failed<Revision> {
        check_sizes(key, value)?;
        let conflict = |found| StoreError::Conflict {
            key: key.to_owned(),
            expected,
            found,
        };
        let revision = match expected {
            // Neither is a possible state of a key: 0 is the revision of an absent one.
            Expected::Absent if value.is_none() => {
                return Err(conflict(self.get(key)?.map(|it| it.revision)));
            }
            Expected::Revision(Revision(0)) => {
                return Err(conflict(self.get(key)?.map(|it| it.revision)));
            }
            Expected::Absent => 0,
            Expected::Revision(revision) => revision.0,
        };
        let (place, lease_text) = (self.key(key), lease.unwrap_or(LeaseId(0)).0.to_string());
        let change = match value {
            Some(value) => json!({"request_put": {
                "key": place, "value": BASE64.encode(value), "lease": lease_text,
            }}),
            None => json!({"request_delete_range": {"key": place}}),
        };
        let transaction = json!({
            "compare": [{
                "target": "MOD", "result": "EQUAL", "key": place, "mod_revision": revision.to_string(),
            }],
            "success": [change],
            "failure": [{"request_range": {"key": place}}],
        });
        let answer = self.write("kv/txn", &transaction, lease)?;
        if answer["succeeded"] == true {
            return revision_of(&answer);
        }
        let found = &answer["responses"][0]["response_range"]["kvs"][0];
        Err(conflict(match found.is_null() {
            true => None,
            false => Some(Revision(number(&found["mod_revision"])?)),
        }))
    }

    fn list(&self, prefix: &str) -> Failed<Listing> {
        let from = format!("{}{prefix}", self.prefix);
        let range = json!({"key": BASE64.encode(&from), "range_end": BASE64.encode(end_of(&from))});
        let answer = self.read("kv/range", &range)?;
        let found = answer["kvs"].as_array().into_iter().flatten();
        Ok(Listing {
            epoch: epoch_of(&answer)?,
            revision: revision_of(&answer)?,
            entries: found
                .map(|found| self.entry(found))
                .collect::<Failed<_>>()?,
        })
    }

    fn watch(&self, prefix: &str, after: Revision, timeout: Duration) -> Failed<Changes> {
        let deadline = Instant::now() + timeout;
        let (epoch, now) = self.revision()?;
        if after > now {
            // A revision of the future is of another store, whose content is unknown here.
            return Err(StoreError::Compacted { after, oldest: now });
        }
        if after == now && timeout.is_zero() {
            return Ok(Changes {
                epoch,
                revision: now,
                changes: Vec::new(),
            });
        }
        let follow = self.follow(prefix, after, now, deadline.into());
        let changes = self.runtime.block_on(follow)?;
        Ok(Changes { epoch, ..changes })
    }

    fn lease(&self, lease: Option<LeaseId>, lifetime: Duration) -> Failed<LeaseId> {
        let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
        match lease {
            None => {
                let grant = json!({"TTL": seconds.max(1).to_string(), "ID": "0"});
                let answer = self.read("lease/grant", &grant)?;
                Ok(LeaseId(number(&answer["ID"])?))
            }
            Some(id) if lifetime.is_zero() => {
                let revoke = json!({"ID": id.0.to_string()});
                self.write("lease/revoke", &revoke, lease)?;
                Ok(id)
            }
            Some(id) => {
                let renew = json!({"ID": id.0.to_string()});
                let answer = self.read_leased("lease/keepalive", &renew, lease)?;
                match number(&answer["result"]["TTL"])? {
                    0 => Err(StoreError::NoLease(id)),
                    _ => Ok(id),
                }
            }
        }
    }
}

/// The first key after all that begin with a prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

/// A cluster that is restored from a snapshot gets another id.
fn epoch_of(answer: &Value) -> Failed<Epoch> {
    Ok(Epoch {
        id: number(&answer["header"]["cluster_id"])?,
        begin: Revision(0),
    })
}

fn revision_of(answer: &Value) -> Failed<Revision> {
    number(&answer["header"]["revision"]).map(Revision)
}

/// A number, as text in JSON; absent if it is 0.
fn number(value: &Value) -> Failed<u64> {
    match value {
        Value::Null => Ok(0),
        Value::String(digits) => digits.parse().map_err(|_| unexpected("no number")),
        Value::Number(number) => number.as_u64().ok_or_else(|| unexpected("no number")),
        _ => Err(unexpected("no number")),
    }
}

fn bytes(value: &Value) -> Failed<Vec<u8>> {
    let text = value.as_str().unwrap_or_default();
    BASE64.decode(text).map_err(|_| unexpected("no base64"))
}

fn text(value: &Value) -> Failed<String> {
    String::from_utf8(bytes(value)?).map_err(|_| unexpected("a key that is not UTF-8"))
}

fn unavailable(why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("etcd: {why}"))
}

fn unexpected(what: &str) -> StoreError {
    StoreError::Unavailable(format!("etcd gave an unexpected answer: {what}"))
}
