//! The members of the fleet: invitations and machines, in the store.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nervure_identity::PublicKey;
use nervure_store::{Entry, Expected, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::{
    ACTUAL, ALIVE, Address, CoordinatorOf, INVITATIONS, Joining, LINKS, MACHINES, Machine, Role,
    Standing, Terms, check_machine_name, digest, hexadecimal,
};

/// Open invitations at a time.
const MAX_INVITATIONS: usize = 256;

/// Machines that wait for approval at a time: an invitation for many may get into wrong hands.
const MAX_WAITING: usize = 256;

/// The longest time that an invitation is valid.
const MAX_LIFETIME: Duration = Duration::from_secs(366 * 24 * 3600);

/// Time after the end of an invitation in which its entry stays, so that the end can be named.
const KEPT_AFTER_END: Duration = Duration::from_secs(24 * 3600);

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The coordinator's own machine.
    Own,
    /// A machine that was invited; its standing says whether it is paired.
    Known(Machine),
    Stranger(PublicKey),
}

impl Caller {
    pub fn is_paired(&self) -> bool {
        match self {
            Self::Own => true,
            Self::Known(machine) => machine.standing == Standing::Paired,
            Self::Stranger(_) => false,
        }
    }
}

/// An invitation in the store. The secret itself is not kept.
#[derive(Debug, Serialize, Deserialize)]
struct Invited {
    role: Role,
    needs_approval: bool,
    until_utc_millis: u64,
    #[serde(default)]
    is_used: bool,
}

impl Invited {
    fn has_expired(&self) -> bool {
        self.until_utc_millis <= utc_millis()
    }
}

/// The machines and the open invitations of a fleet.
pub(crate) struct Members {
    /// The key of the coordinator.
    pub key: PublicKey,
    /// Its address.
    pub listens: SocketAddr,
    /// Its addresses and names.
    pub announced: Mutex<Vec<Address>>,
    pub store: Arc<dyn Store>,
    /// Called with each machine whose standing has changed.
    pub on_change: Box<dyn Fn(Machine) + Send + Sync>,
}

impl Members {
    /// The caller that a key belongs to.
    pub fn caller(&self, key: PublicKey) -> Result<Caller, StoreError> {
        if key == self.key {
            return Ok(Caller::Own);
        }
        let text = key.to_string();
        let entries = self.store.list(MACHINES)?.entries;
        let machines = entries.iter().filter_map(machine_of);
        let mut of_key = machines.filter(|machine| machine.key == text);
        Ok(of_key.next().map_or(Caller::Stranger(key), Caller::Known))
    }

    /// Makes an invitation, and returns its secret.
    pub fn invite(&self, terms: Terms) -> Result<String, StoreError> {
        let unavailable = |why: &str| StoreError::Unavailable(why.to_owned());
        let invited = self.store.list(INVITATIONS)?.entries.into_iter();
        let open = invited.filter(|entry| {
            let invited = invited_of(entry);
            invited.is_none_or(|invited| !invited.is_used && !invited.has_expired())
        });
        if open.count() >= MAX_INVITATIONS {
            return Err(StoreError::Refused(format!(
                "there are {MAX_INVITATIONS} open invitations; they end with time"
            )));
        }
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)
            .map_err(|_| unavailable("the system gives no random numbers"))?;
        let secret = hexadecimal(&secret);
        let lifetime = terms.lifetime.min(MAX_LIFETIME);
        let invited = Invited {
            role: terms.role,
            needs_approval: terms.needs_approval,
            until_utc_millis: utc_millis()
                .saturating_add(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX)),
            is_used: false,
        };
        // The lease removes the entry. The time within counts as well: leases begin again when a
        // coordinator does.
        let lease = self.store.lease(None, lifetime + KEPT_AFTER_END)?;
        let key = invitation_key(&secret);
        self.store
            .compare_and_set(&key, Expected::Absent, Some(&json(&invited)), Some(lease))?;
        Ok(secret)
    }

    /// Whether an invitation can still be used.
    pub fn is_open(&self, secret: &str) -> Result<bool, StoreError> {
        match self.open_invitation(secret) {
            Ok(_) => Ok(true),
            Err(StoreError::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The invitation with this secret. Only a machine that has the secret learns that it was used or
    /// has expired.
    fn open_invitation(&self, secret: &str) -> Result<(Entry, Invited), StoreError> {
        let refused = |why: &str| StoreError::Refused(format!("the invitation {why}"));
        // The digest is the key: how long the search takes says nothing about the secret.
        let entry = self.store.get(&invitation_key(secret))?;
        let invited = entry.and_then(|entry| Some((invited_of(&entry)?, entry)));
        match invited {
            None => Err(refused(
                "is not valid: it is none of this fleet, or ended more than a day ago",
            )),
            Some((invited, _)) if invited.is_used => Err(refused(USED)),
            Some((invited, _)) if invited.has_expired() => Err(refused("has expired")),
            Some((invited, entry)) => Ok((entry, invited)),
        }
    }

    /// Pairs a machine, or lets it wait. A wrong secret gives no detail.
    pub fn join(
        &self,
        caller: &Caller,
        address: IpAddr,
        secret: &str,
        name: String,
    ) -> Result<Joining, StoreError> {
        match caller {
            Caller::Own => self.join_own(address, name),
            Caller::Known(known) if known.standing != Standing::Revoked => {
                Ok(joined(known.standing == Standing::Waiting, &known.name))
            }
            Caller::Known(known) => {
                let key = known.key.clone();
                self.join_invited(key, address, secret, known.name.clone())
            }
            Caller::Stranger(key) => self.join_invited(key.to_string(), address, secret, name),
        }
    }

    /// The machine of the coordinator is an operator.
    fn join_own(&self, address: IpAddr, name: String) -> Result<Joining, StoreError> {
        check_machine_name(&name).map_err(StoreError::Refused)?;
        let entry = self.store.get(&machine_key(&name))?;
        let known = entry.as_ref().and_then(machine_of);
        let was = known.as_ref().and_then(|known| known.coordinator.as_ref());
        let since = was.map_or_else(utc_millis, |was| was.since_utc_millis);
        let machine = Machine {
            key: self.key.to_string(),
            address,
            role: Role::Operator,
            standing: Standing::Paired,
            coordinator: Some(self.coordinator_since(since)),
            name,
        };
        if known.as_ref() == Some(&machine) {
            return Ok(joined(false, &machine.name));
        }
        match known {
            Some(other) if other.key != machine.key => Err(is_taken(&machine.name)),
            // Revoked by another coordinator.
            Some(own) if own.standing == Standing::Revoked => {
                Err(StoreError::Refused(format!("`{}` was revoked", own.name)))
            }
            _ => {
                self.write(&machine, entry.as_ref())?;
                Ok(joined(false, &machine.name))
            }
        }
    }

    fn announced(&self) -> Vec<Address> {
        let announced = self.announced.lock();
        announced.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn coordinator_since(&self, since_utc_millis: u64) -> CoordinatorOf {
        let mut others = self.announced();
        let address = others.iter().find_map(Address::ip).unwrap_or(self.listens);
        others.retain(|other| other.ip() != Some(address));
        CoordinatorOf {
            address,
            others,
            since_utc_millis,
        }
    }

    /// The addresses in an invitation: a robot may be on another network than the default route.
    pub fn invited_to(&self) -> Vec<Address> {
        const MOST: usize = 4;
        let mut addresses = self.announced();
        addresses.retain(|address| address.ip().is_some());
        addresses.truncate(MOST);
        addresses
    }

    /// Changes the addresses in the entry of this machine.
    pub fn announce(&self, announced: Vec<Address>) -> Result<(), StoreError> {
        *self
            .announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = announced;
        let own = self.key.to_string();
        for entry in self.store.list(MACHINES)?.entries {
            let Some(mut machine) = machine_of(&entry).filter(|machine| machine.key == own) else {
                continue;
            };
            let Some(was) = machine.coordinator.take() else {
                continue;
            };
            let is = self.coordinator_since(was.since_utc_millis);
            if is != was {
                machine.coordinator = Some(is);
                let expected = Expected::Revision(entry.revision);
                self.store
                    .compare_and_set(&entry.key, expected, Some(&json(&machine)), None)?;
            }
        }
        Ok(())
    }

    fn join_invited(
        &self,
        key: String,
        address: IpAddr,
        secret: &str,
        name: String,
    ) -> Result<Joining, StoreError> {
        let (invitation, invited) = self.open_invitation(secret)?;
        check_machine_name(&name).map_err(StoreError::Refused)?;
        let (name, entry) = self.place(name, &key, invited.needs_approval)?;
        let machine = Machine {
            name,
            key,
            address,
            role: invited.role,
            standing: match invited.needs_approval {
                true => Standing::Waiting,
                false => Standing::Paired,
            },
            coordinator: None,
        };
        if invited.needs_approval {
            self.check_waiting()?;
            self.write(&machine, entry.as_ref())?;
            return Ok(joined(true, &machine.name));
        }
        // Marked before it is used: it is valid once, also for two machines at a time. A name that
        // another machine takes meanwhile does not use it up.
        let set = |expected, value: &[u8]| {
            let (key, lease) = (&invitation.key, invitation.lease);
            let expected = Expected::Revision(expected);
            self.store
                .compare_and_set(key, expected, Some(value), lease)
        };
        let used = Invited {
            is_used: true,
            ..invited
        };
        let marked = match set(invitation.revision, &json(&used)) {
            Err(StoreError::Conflict { .. }) => {
                return Err(StoreError::Refused(format!("the invitation {USED}")));
            }
            other => other?,
        };
        self.write(&machine, entry.as_ref()).inspect_err(|_| {
            // If it fails, the user makes another invitation.
            let _ = set(marked, &invitation.value);
        })?;
        Ok(joined(false, &machine.name))
    }

    /// The name of a new machine, and the entry that it replaces: that of a revoked machine.
    /// Machines from one image may have the same name: then a part of the key is added to it.
    fn place(
        &self,
        name: String,
        key: &str,
        is_of_many: bool,
    ) -> Result<(String, Option<Entry>), StoreError> {
        let is_free = |entry: &Option<Entry>| {
            let machine = entry.as_ref().and_then(machine_of);
            entry.is_none() || machine.is_some_and(|it| it.standing == Standing::Revoked)
        };
        let entry = self.store.get(&machine_key(&name))?;
        if is_free(&entry) {
            return Ok((name, entry));
        }
        if !is_of_many {
            return Err(is_taken(&name));
        }
        let digits = key.split_once(':').map_or(key, |(_, digits)| digits);
        let stem: String = name.chars().take(crate::MAX_NAME_BYTES - 9).collect();
        let longer = format!("{stem}-{}", digits.get(..8).unwrap_or_default());
        let entry = self.store.get(&machine_key(&longer))?;
        match is_free(&entry) {
            true => Ok((longer, entry)),
            false => Err(is_taken(&longer)),
        }
    }

    fn check_waiting(&self) -> Result<(), StoreError> {
        let entries = self.store.list(MACHINES)?.entries;
        let machines = entries.iter().filter_map(machine_of);
        match machines
            .filter(|it| it.standing == Standing::Waiting)
            .count()
        {
            MAX_WAITING.. => Err(StoreError::Refused(format!(
                "{MAX_WAITING} machines wait for approval already"
            ))),
            _ => Ok(()),
        }
    }

    /// Pairs a machine that waits.
    pub fn approve(&self, name: &str) -> Result<Machine, StoreError> {
        let (entry, mut machine) = self.known(name)?;
        match machine.standing {
            Standing::Paired => return Ok(machine),
            Standing::Waiting => machine.standing = Standing::Paired,
            Standing::Revoked => {
                return Err(StoreError::Refused(format!(
                    "`{name}` was revoked: it needs a new invitation"
                )));
            }
        }
        self.write(&machine, Some(&entry))?;
        Ok(machine)
    }

    /// Takes a machine out of the fleet. One that waits is forgotten.
    pub fn revoke(&self, name: &str) -> Result<Machine, StoreError> {
        let (entry, mut machine) = self.known(name)?;
        if machine.key == self.key.to_string() {
            return Err(StoreError::Refused(format!(
                "`{name}` is the machine of this coordinator, which cannot be revoked"
            )));
        }
        let was = machine.standing;
        (machine.standing, machine.coordinator) = (Standing::Revoked, None);
        match was {
            Standing::Revoked => {}
            Standing::Waiting => {
                let expected = Expected::Revision(entry.revision);
                self.store
                    .compare_and_set(&entry.key, expected, None, None)?;
                (self.on_change)(machine.clone());
            }
            Standing::Paired => self.write(&machine, Some(&entry))?,
        }
        // Its reports about itself are void.
        for prefix in [LINKS, ACTUAL] {
            remove(&*self.store, &format!("{prefix}{name}"))?;
        }
        for noted in self.store.list(&format!("{ALIVE}{name}@"))?.entries {
            remove(&*self.store, &noted.key)?;
        }
        Ok(machine)
    }

    /// Notes the new address from which the daemon of a machine connects.
    pub fn moved(&self, machine: &Machine, address: IpAddr) -> Result<(), StoreError> {
        let (entry, mut now) = self.known(&machine.name)?;
        if now.key != machine.key || now.address == address {
            return Ok(());
        }
        now.address = address;
        let expected = Expected::Revision(entry.revision);
        let written = self
            .store
            .compare_and_set(&entry.key, expected, Some(&json(&now)), None);
        written.map(drop)
    }

    fn known(&self, name: &str) -> Result<(Entry, Machine), StoreError> {
        let entry = self.store.get(&machine_key(name))?;
        let known = entry.and_then(|entry| Some((machine_of(&entry)?, entry)));
        let (machine, entry) = known.ok_or_else(|| {
            StoreError::Refused(format!("there is no machine `{name}` in this fleet"))
        })?;
        Ok((entry, machine))
    }

    fn write(&self, machine: &Machine, before: Option<&Entry>) -> Result<(), StoreError> {
        let expected = before.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
        let key = machine_key(&machine.name);
        match self
            .store
            .compare_and_set(&key, expected, Some(&json(machine)), None)
        {
            Err(StoreError::Conflict { .. }) if before.is_none() => Err(is_taken(&machine.name)),
            Err(error) => Err(error),
            Ok(_) => {
                (self.on_change)(machine.clone());
                Ok(())
            }
        }
    }
}

fn remove(store: &dyn Store, key: &str) -> Result<(), StoreError> {
    while let Some(entry) = store.get(key)? {
        let expected = Expected::Revision(entry.revision);
        match store.compare_and_set(key, expected, None, None) {
            Err(StoreError::Conflict { .. }) => {}
            done => return done.map(drop),
        }
    }
    Ok(())
}

fn joined(waits: bool, name: &str) -> Joining {
    match waits {
        true => Joining::Waiting(name.to_owned()),
        false => Joining::Paired(name.to_owned()),
    }
}

fn is_taken(name: &str) -> StoreError {
    StoreError::Refused(format!("there is another machine `{name}`"))
}

fn machine_key(name: &str) -> String {
    format!("{MACHINES}{name}")
}

/// Why a used invitation is refused.
const USED: &str = "was used already: it is valid once";

fn invited_of(entry: &Entry) -> Option<Invited> {
    serde_json::from_slice(&entry.value).ok()
}

fn invitation_key(secret: &str) -> String {
    format!("{INVITATIONS}{}", digest(secret.as_bytes()))
}

fn machine_of(entry: &Entry) -> Option<Machine> {
    serde_json::from_slice(&entry.value).ok()
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("entries can be written as JSON")
}

fn utc_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
