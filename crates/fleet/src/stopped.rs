//! A roll that has stopped.

/// Why an instance was not replaced.
#[derive(Debug, PartialEq, Eq)]
pub struct Stopped {
    pub(crate) why: String,
    /// The state of the instance now.
    pub(crate) now: String,
}

impl Stopped {
    /// The reason, and the state now.
    pub fn new(why: impl Into<String>, now: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            now: now.into(),
        }
    }
}

/// A roll that has stopped at an instance.
#[derive(Debug)]
pub struct Roll {
    /// The instance, or the node of it.
    pub(crate) what: String,
    /// The instance.
    pub(crate) name: String,
    pub(crate) stop: Stopped,
    /// Instances with the new version.
    pub(crate) new: Vec<String>,
    /// Instances that run as before.
    pub(crate) old: Vec<String>,
    /// Instances that do not run.
    pub(crate) absent: Vec<String>,
}

impl Roll {
    /// The state of the instances, as texts.
    pub(crate) fn causes(&self) -> Vec<String> {
        let lists = [
            ("replaced or started", &self.new),
            ("as before", &self.old),
            ("not started", &self.absent),
        ];
        let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
        let lists = lists.map(|(what, names)| format!("{what}: {}", names.join(", ")));
        let now = format!("{}: {}", self.name, self.stop.now);
        [now].into_iter().chain(lists).collect()
    }
}
