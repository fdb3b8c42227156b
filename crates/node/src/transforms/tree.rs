//! The tree of frames with the samples of the last ten seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::transforms::errors::{RegistryError, TimeError};
use ::transforms::geometry::Vector3;
use ::transforms::time::{Stamp, TimePoint};
use ::transforms::{Registry, Transform as Stored};
use nervure_message::Schema;
use nervure_protocol::graph::StaticTransform;
use nervure_protocol::nearest;

use super::error::{Edge, LookupError, LookupFailure, Refused};
use super::message;
use super::pose::{LookupTime, Transform, quaternion};
use crate::sample::Sample;

/// Samples older than this, compared with the newest one of the frame, are dropped, as in tf2.
const HISTORY_NANOS: i64 = 10_000_000_000;
/// Largest deviation of the norm of a quaternion from 1, which is then normalised: half of tf2's limit of
/// 0.01 for its square.
const NORM_TOLERANCE: f64 = 5e-3;
/// Maximum number of frames: ten times the links of a large robot, for each of ten robots.
const MAX_FRAMES: usize = 10_000;
/// Maximum number of samples, of about 100 bytes each: 50 frames at 1 kHz, counted twice.
const MAX_SAMPLES: usize = 1_000_000;
/// Frames whose names are compared with an unknown one, which a lookup that waits does at each wake-up.
const MAX_COMPARED: usize = 500;
/// Samples in a row that are too old, after which the clock of their producer has jumped back, and the
/// frame begins a new history.
const OLD_SAMPLES_OF_A_JUMP: u32 = 10;
/// Error of a time in seconds, as a `f64`: two of its steps until 2038, one until 2106.
const SECONDS_ERROR: Duration = Duration::from_nanos(512);

/// A tree of frames, by tf2's rules: see [`crate::transforms`].
#[derive(Debug)]
pub struct TransformTree {
    registry: Registry<Nanos>,
    /// By the name of the frame. Roots are not among them.
    frames: BTreeMap<String, Frame>,
    /// Upper limit of the number of samples in the registry.
    samples: usize,
    /// Of the last sample, with its encoded form.
    schema: Option<(Arc<[u8]>, Schema)>,
}

/// A frame with a parent.
#[derive(Debug)]
struct Frame {
    parent: String,
    /// `None` for a static transform.
    history: Option<History>,
}

/// Dynamic samples of a frame.
#[derive(Clone, Copy, Debug)]
struct History {
    /// The lowest stamp that was received; its sample may have been dropped.
    first: i64,
    newest: i64,
    received: u64,
    /// Samples since the newest stamp was `counted_from`, and in the ten seconds before that. Older ones
    /// have been dropped. The registry does not report their number.
    counted_from: i64,
    counted: usize,
    counted_before: usize,
    /// Samples in a row that were too old.
    too_old: u32,
}

/// A frame of the tree, as [`TransformTree::frames`] returns it.
#[derive(Clone, Copy, Debug)]
pub struct FrameState<'t> {
    /// The frame.
    pub child: &'t str,
    /// Its parent.
    pub parent: &'t str,
    /// The stamp of its newest sample, in nanoseconds since the Unix epoch; `None` for a static
    /// transform.
    pub newest: Option<i64>,
    /// Samples that were received.
    pub received: u64,
}

/// A time in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Nanos(i64);

impl TimePoint for Nanos {
    fn duration_since(self, earlier: Self) -> Result<Duration, TimeError> {
        match self >= earlier {
            true => Ok(Duration::from_nanos(self.0.abs_diff(earlier.0))),
            false => Err(TimeError::DurationUnderflow),
        }
    }

    fn checked_sub(self, rhs: Duration) -> Result<Self, TimeError> {
        let nanos = i64::try_from(rhs.as_nanos()).map_err(|_| TimeError::DurationOverflow)?;
        let earlier = self.0.checked_sub(nanos).map(Self);
        earlier.ok_or(TimeError::DurationUnderflow)
    }

    fn as_seconds_lossy(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Default for TransformTree {
    fn default() -> Self {
        Self {
            registry: Registry::with_max_age(Duration::from_nanos(HISTORY_NANOS.unsigned_abs())),
            frames: BTreeMap::new(),
            samples: 0,
            schema: None,
        }
    }
}

impl TransformTree {
    /// Takes in a transform that never changes.
    ///
    /// # Errors
    /// [`Refused`], and the tree is as before.
    pub fn add_static(&mut self, transform: &StaticTransform) -> Result<(), Refused> {
        let StaticTransform {
            parent,
            child,
            translation,
            rotation,
        } = transform;
        self.add(parent, child, None, *translation, *rotation)
    }

    /// Takes in a sample of the type `std/Transform@1`, whose frame is the parent. Returns the child.
    ///
    /// # Errors
    /// [`Refused`], and the tree is as before.
    pub fn add_sample(&mut self, sample: &Sample) -> Result<String, Refused> {
        let received = message::read(sample, &mut self.schema)?;
        let (parent, child) = (&received.parent, &received.child);
        let stamp = Some(sample.stamp());
        let (translation, rotation) = (received.translation, received.rotation);
        self.add(parent, child, stamp, translation, rotation)?;
        Ok(received.child)
    }

    /// Takes in the pose of `child` in `parent` at a time in nanoseconds since the Unix epoch; `None` for
    /// a static transform.
    ///
    /// # Errors
    /// [`Refused`], and the tree is as before.
    pub fn add(
        &mut self,
        parent: &str,
        child: &str,
        stamp: Option<i64>,
        translation: [f64; 3],
        rotation: [f64; 4],
    ) -> Result<(), Refused> {
        if !translation
            .iter()
            .chain(&rotation)
            .all(|number| number.is_finite())
        {
            let edge = Edge::new(parent, child);
            return Err(Refused::NotFinite { edge });
        }
        let rotation = quaternion(rotation);
        let norm = rotation.norm();
        let is_unit = (norm - 1.0).abs() <= NORM_TOLERANCE;
        let Some(unit) = rotation.normalize().ok().filter(|_| is_unit) else {
            let edge = Edge::new(parent, child);
            return Err(Refused::NotUnit { edge, norm });
        };
        self.check_place(parent, child, stamp)?;
        if let Some(stamp) = stamp {
            self.check_age(parent, child, stamp)?;
        }
        let [x, y, z] = translation;
        let at = stamp.map_or(Stamp::Static, |stamp| Stamp::At(Nanos(stamp)));
        let stored = Stored::new(parent, child, Vector3 { x, y, z }, unit, at);
        let added = stored.map_err(RegistryError::from);
        // The frame keeps its parent and kind, and its numbers are valid.
        if added
            .and_then(|stored| self.registry.add_transform(stored))
            .is_err()
        {
            let edge = Edge::new(parent, child);
            return Err(Refused::Cycle { edge });
        }
        self.note(parent, child, stamp);
        Ok(())
    }

    /// Checks that the frame keeps its parent and its kind, and that the tree has room.
    fn check_place(&self, parent: &str, child: &str, stamp: Option<i64>) -> Result<(), Refused> {
        let edge = || Edge::new(parent, child);
        if parent == child {
            return Err(Refused::Cycle { edge: edge() });
        }
        let known = self.frames.get(child);
        match known {
            Some(known) if known.parent != parent => {
                return Err(Refused::TwoParents {
                    edge: edge(),
                    parent: known.parent.clone(),
                });
            }
            Some(known) if known.history.is_none() != stamp.is_none() => {
                return Err(Refused::Static { edge: edge() });
            }
            _ => {}
        }
        let has_room = known.is_some() || self.frames.len() < MAX_FRAMES;
        if has_room && self.samples < MAX_SAMPLES {
            return Ok(());
        }
        Err(Refused::Full {
            edge: edge(),
            frames: self.frames.len(),
            samples: self.samples,
        })
    }

    /// Refuses a sample that would be dropped at once, and forgets a history whose clock has jumped back.
    fn check_age(&mut self, parent: &str, child: &str, stamp: i64) -> Result<(), Refused> {
        let frame = self.frames.get_mut(child);
        let Some(history) = frame.and_then(|frame| frame.history.as_mut()) else {
            return Ok(());
        };
        if stamp >= history.newest.saturating_sub(HISTORY_NANOS) {
            history.too_old = 0;
            return Ok(());
        }
        history.too_old += 1;
        if history.too_old < OLD_SAMPLES_OF_A_JUMP {
            return Err(Refused::Old {
                edge: Edge::new(parent, child),
                by: Duration::from_nanos(history.newest.abs_diff(stamp)),
            });
        }
        self.samples -= history.counted + history.counted_before;
        self.frames.remove(child);
        self.registry.remove_frame(child);
        Ok(())
    }

    /// Keeps the books on a transform that the registry has taken in.
    fn note(&mut self, parent: &str, child: &str, stamp: Option<i64>) {
        let Some(stamp) = stamp else {
            let parent = parent.to_owned();
            let frame = Frame {
                parent,
                history: None,
            };
            self.frames.insert(child.to_owned(), frame);
            return;
        };
        self.samples += 1;
        if let Some(Frame {
            history: Some(history),
            ..
        }) = self.frames.get_mut(child)
        {
            self.samples -= history.add(stamp);
            return;
        }
        let frame = Frame {
            parent: parent.to_owned(),
            history: Some(History::new(stamp)),
        };
        self.frames.insert(child.to_owned(), frame);
    }

    /// The frames with a parent, by name.
    pub fn frames(&self) -> impl Iterator<Item = FrameState<'_>> {
        self.frames.iter().map(|(child, frame)| FrameState {
            child,
            parent: &frame.parent,
            newest: frame.history.map(|history| history.newest),
            received: frame.history.map_or(1, |history| history.received),
        })
    }

    /// The pose of the frame `source` in the frame `target`.
    ///
    /// # Errors
    /// [`LookupError`] with the reason.
    pub fn lookup(
        &self,
        target: &str,
        source: &str,
        time: impl Into<LookupTime>,
    ) -> Result<Transform, LookupError> {
        let found = match time.into() {
            LookupTime::Latest => self.latest(target, source),
            LookupTime::At(nanos) => self.at(target, source, nanos),
            LookupTime::Seconds(seconds) => self.near(target, source, seconds),
        };
        found.map_err(|reason| LookupError::new(target, source, reason))
    }

    fn latest(&self, target: &str, source: &str) -> Result<Transform, LookupFailure> {
        self.check_known(target, source)?;
        match self.registry.latest_common_time(target, source) {
            Ok(Stamp::At(Nanos(newest))) => self.at(target, source, newest),
            // The time does not matter.
            Ok(Stamp::Static) => Ok(Transform {
                stamp: None,
                ..self.at(target, source, 0)?
            }),
            Err(error) => Err(self.failure(&error, target, source)),
        }
    }

    fn at(&self, target: &str, source: &str, nanos: i64) -> Result<Transform, LookupFailure> {
        self.check_known(target, source)?;
        let found = self.registry.get_transform(target, source, Nanos(nanos));
        let found = found.map_err(|error| self.failure(&error, target, source))?;
        let found = Transform::new(&found, nanos);
        let is_finite = found.translation.iter().all(|number| number.is_finite());
        is_finite.then_some(found).ok_or(LookupFailure::NotFinite)
    }

    /// As `at`, with the error of a time in seconds.
    fn near(&self, target: &str, source: &str, seconds: f64) -> Result<Transform, LookupFailure> {
        let mut nanos = (seconds * 1e9) as i64;
        let mut found = self.at(target, source, nanos);
        // Once back to the newest samples, and once on to a single one.
        for _ in 0..2 {
            nanos = match found {
                Err(LookupFailure::Late { by, .. }) if by <= SECONDS_ERROR => {
                    nanos - by.subsec_nanos() as i64
                }
                Err(LookupFailure::Early { by, .. }) if by <= SECONDS_ERROR => {
                    nanos + by.subsec_nanos() as i64
                }
                _ => break,
            };
            found = self.at(target, source, nanos);
        }
        found
    }

    /// The registry answers for an unknown frame relative to itself.
    fn check_known(&self, target: &str, source: &str) -> Result<(), LookupFailure> {
        match target == source && !self.is_known(target) {
            true => Err(self.unknown(target)),
            false => Ok(()),
        }
    }

    fn is_known(&self, frame: &str) -> bool {
        self.frames.contains_key(frame) || self.frames.values().any(|known| known.parent == frame)
    }

    fn unknown(&self, frame: &str) -> LookupFailure {
        let names = self.frames.iter().take(MAX_COMPARED);
        let names = names.flat_map(|(child, known)| [child.as_str(), known.parent.as_str()]);
        LookupFailure::UnknownFrame {
            frame: frame.to_owned(),
            nearest: nearest(frame, names).map(str::to_owned),
        }
    }

    fn failure(&self, error: &RegistryError<Nanos>, target: &str, source: &str) -> LookupFailure {
        match error {
            RegistryError::UnknownFrame(frame) => self.unknown(frame),
            RegistryError::NotFoundAt {
                requested,
                frame,
                covered,
                ..
            } => self.missing_at(requested.0, frame, *covered, target, source),
            RegistryError::NoCommonTime {
                frame,
                covered: Some((oldest, _)),
                ..
            } => {
                let late = self.furthest_behind(target, source);
                late.map_or(LookupFailure::NotFinite, |(late, history)| {
                    LookupFailure::NoCommonTime {
                        late: self.edge(late),
                        early: self.edge(frame),
                        by: Duration::from_nanos(oldest.0.abs_diff(history.newest)),
                    }
                })
            }
            RegistryError::Disconnected { .. } => LookupFailure::Unconnected {
                target_root: self.root(target).to_owned(),
                source_root: self.root(source).to_owned(),
            },
            _ => LookupFailure::NotFinite,
        }
    }

    /// The failure for a time that the samples of `frame` do not cover.
    fn missing_at(
        &self,
        nanos: i64,
        frame: &str,
        covered: Option<(Nanos, Nanos)>,
        target: &str,
        source: &str,
    ) -> LookupFailure {
        let late = self.furthest_behind(target, source);
        match (late, covered) {
            (Some((frame, History { first, newest, .. })), _) if nanos > *newest => {
                LookupFailure::Late {
                    edge: self.edge(frame),
                    by: Duration::from_nanos(nanos.abs_diff(*newest)),
                    is_only: first == newest,
                }
            }
            (_, Some((oldest, newest))) => LookupFailure::Early {
                edge: self.edge(frame),
                by: Duration::from_nanos(oldest.0.abs_diff(nanos)),
                is_only: oldest == newest,
            },
            // No frame is without samples.
            (_, None) => LookupFailure::NotFinite,
        }
    }

    /// The dynamic frame between two others whose newest sample is the oldest.
    fn furthest_behind<'t>(
        &'t self,
        target: &'t str,
        source: &'t str,
    ) -> Option<(&'t str, &'t History)> {
        let (target, source) = (self.ancestry(target), self.ancestry(source));
        let both = || target.iter().chain(&source);
        // Frames above the common ancestor are in both.
        let is_between = |frame: &&&str| both().filter(|other| other == frame).count() == 1;
        let dynamic = both()
            .filter(is_between)
            .filter_map(|frame| Some((*frame, self.history(frame)?)));
        dynamic.min_by_key(|(_, history)| history.newest)
    }

    /// A frame and its ancestors, without the root.
    fn ancestry<'t>(&'t self, frame: &'t str) -> Vec<&'t str> {
        let mut ancestry = Vec::new();
        let mut next = frame;
        while let Some(frame) = self.frames.get(next) {
            ancestry.push(next);
            next = &frame.parent;
        }
        ancestry
    }

    fn root<'t>(&'t self, frame: &'t str) -> &'t str {
        let last = self.ancestry(frame).pop();
        last.map_or(frame, |last| &self.frames[last].parent)
    }

    fn history(&self, frame: &str) -> Option<&History> {
        self.frames.get(frame)?.history.as_ref()
    }

    fn edge(&self, child: &str) -> Edge {
        let parent = self.frames.get(child).map(|frame| frame.parent.as_str());
        Edge::new(parent.unwrap_or_default(), child)
    }
}

impl History {
    fn new(stamp: i64) -> Self {
        Self {
            first: stamp,
            newest: stamp,
            received: 1,
            counted_from: stamp,
            counted: 1,
            counted_before: 0,
            too_old: 0,
        }
    }

    /// Counts a sample. Returns the number of samples that are certainly dropped by now.
    fn add(&mut self, stamp: i64) -> usize {
        self.newest = self.newest.max(stamp);
        self.first = self.first.min(stamp);
        self.received += 1;
        self.counted += 1;
        if self.newest.saturating_sub(self.counted_from) <= HISTORY_NANOS {
            return 0;
        }
        self.counted_from = self.newest;
        let dropped = std::mem::replace(&mut self.counted_before, self.counted - 1);
        self.counted = 1;
        dropped
    }
}
