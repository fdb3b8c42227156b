//! Reasons why a transform is not found, or not taken in.

use std::fmt;
use std::time::Duration;

use nervure_protocol::graph::MAX_FRAME_BYTES;

/// A frame and its parent. It is shown as `parent -> child`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The parent.
    pub parent: String,
    /// The frame.
    pub child: String,
}

impl Edge {
    pub(super) fn new(parent: &str, child: &str) -> Self {
        Self {
            parent: parent.to_owned(),
            child: child.to_owned(),
        }
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{} -> {}`", self.parent, self.child)
    }
}

/// A lookup without a result.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{target}` -> `{source_frame}`: {reason}{}", shown_wait(*waited))]
pub struct LookupError {
    /// The frame in which the pose was asked for.
    pub target: String,
    /// The frame whose pose was asked for.
    pub source_frame: String,
    /// The reason.
    pub reason: Box<LookupFailure>,
    /// Time for which the lookup has waited for it.
    pub waited: Duration,
}

impl LookupError {
    pub(crate) fn new(target: &str, source: &str, reason: LookupFailure) -> Self {
        Self {
            target: target.to_owned(),
            source_frame: source.to_owned(),
            reason: Box::new(reason),
            waited: Duration::ZERO,
        }
    }

    /// The same lookup, which waits no longer because the dataflow stops.
    #[must_use]
    pub fn stopped(self) -> Self {
        Self {
            reason: Box::new(LookupFailure::Stopped),
            ..self
        }
    }
}

/// Why a lookup has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LookupFailure {
    /// No transform names the frame.
    #[error("there is no frame `{frame}`{}", shown_nearest(nearest.as_deref()))]
    UnknownFrame {
        /// The frame.
        frame: String,
        /// The known frame with the most similar name.
        nearest: Option<String>,
    },
    /// No chain of transforms connects the frames.
    #[error(
        "no transforms connect them: they are in the trees of `{target_root}` and `{source_root}`"
    )]
    Unconnected {
        /// The root of the target's tree.
        target_root: String,
        /// The root of the source's tree.
        source_root: String,
    },
    /// A transform between the frames has not come yet.
    #[error(
        "{} transform of {edge} is {} older than the requested time",
        if *is_only { "the only" } else { "newest" },
        shown(*by)
    )]
    Late {
        /// The transform that is furthest behind.
        edge: Edge,
        /// Time from its newest sample to the requested time.
        by: Duration,
        /// Whether that is its only sample, which answers no other time.
        is_only: bool,
    },
    /// The time is before the samples that are kept.
    #[error(
        "{} transform of {edge} is {} newer than the requested time (10 s are kept)",
        if *is_only { "the only" } else { "oldest" },
        shown(*by)
    )]
    Early {
        /// The transform.
        edge: Edge,
        /// Time from the requested time to its oldest sample.
        by: Duration,
        /// Whether that is its only sample, which answers no other time.
        is_only: bool,
    },
    /// There is no time that every transform between the frames covers.
    #[error("newest transform of {late} is {} older than the oldest of {early}", shown(*by))]
    NoCommonTime {
        /// The transform that is behind.
        late: Edge,
        /// The transform that begins after it.
        early: Edge,
        /// Time between them.
        by: Duration,
    },
    /// The numbers of the chain are beyond those of a `f64`.
    #[error("the transforms between them multiply to numbers that are not finite")]
    NotFinite,
    /// The dataflow file gives this node no transforms.
    #[error(
        "node `{node}` gets no transforms: write `transforms: true` into its entry in the dataflow file"
    )]
    NotDeclared {
        /// The node.
        node: String,
    },
    /// The dataflow stops.
    #[error("the dataflow stops")]
    Stopped,
}

impl LookupFailure {
    /// Whether a transform that is still to come can give the lookup a result.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::UnknownFrame { .. }
            | Self::Unconnected { .. }
            | Self::Late { .. }
            | Self::NoCommonTime { .. } => true,
            Self::Early { .. } | Self::NotFinite | Self::NotDeclared { .. } | Self::Stopped => {
                false
            }
        }
    }

    /// The kind in one word, for bindings.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::UnknownFrame { .. } => "unknown_frame",
            Self::Unconnected { .. } => "unconnected",
            Self::Late { .. } => "late",
            Self::Early { .. } => "early",
            Self::NoCommonTime { .. } => "no_common_time",
            Self::NotFinite => "not_finite",
            Self::NotDeclared { .. } => "not_declared",
            Self::Stopped => "stopped",
        }
    }
}

/// Why a transform is not taken into the tree.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The sample has no frame, or names no child.
    #[error("it names no parent or no child: send it with `frame`, and set `child_frame_id`")]
    NoParent,
    /// The name of a frame is too long.
    #[error("the name of a frame has {bytes} bytes, of {MAX_FRAME_BYTES} at most")]
    LongName {
        /// Its length.
        bytes: usize,
    },
    /// The sample is no `std/Transform@1`.
    #[error("it cannot be read: {reason}")]
    Unreadable {
        /// The reason.
        reason: String,
    },
    /// A number is infinite or not a number.
    #[error("{edge} has a number that is not finite")]
    NotFinite {
        /// The transform.
        edge: Edge,
    },
    /// The rotation is no unit quaternion.
    #[error("the quaternion of {edge} has the norm {norm:.4}, expected 1")]
    NotUnit {
        /// The transform.
        edge: Edge,
        /// The norm.
        norm: f64,
    },
    /// The frame has another parent.
    #[error("{edge}: the frame has the parent `{parent}` already")]
    TwoParents {
        /// The transform.
        edge: Edge,
        /// The frame's first parent.
        parent: String,
    },
    /// The frame would be its own ancestor.
    #[error("{edge} would make the frame its own ancestor")]
    Cycle {
        /// The transform.
        edge: Edge,
    },
    /// The frame has a static transform, which does not change.
    #[error("{edge}: the frame has a static transform already")]
    Static {
        /// The transform.
        edge: Edge,
    },
    /// The sample is older than those that are kept.
    #[error("{edge} is {} older than its newest one (10 s are kept)", shown(*by))]
    Old {
        /// The transform.
        edge: Edge,
        /// The difference.
        by: Duration,
    },
    /// The tree has as many frames or samples as it may.
    #[error("{edge}: the tree is full, with {frames} frames and about {samples} transforms")]
    Full {
        /// The transform.
        edge: Edge,
        /// Frames in the tree.
        frames: usize,
        /// Transforms in the tree.
        samples: usize,
    },
}

fn shown_nearest(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

fn shown_wait(waited: Duration) -> String {
    match waited.is_zero() {
        true => String::new(),
        false => format!("; waited for {}", shown(waited)),
    }
}

/// A duration with a unit: `34 ms`, `1.5 s`.
fn shown(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (unit, name) = match nanos {
        0..1_000 => (1.0, "ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let tenths = (nanos as f64 / unit * 10.0).round() / 10.0;
    format!("{tenths} {name}")
}
