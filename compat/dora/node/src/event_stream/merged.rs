//! Streams of other events, merged into those of a node.

use futures::stream::{Stream, StreamExt, select};

/// An event of the node, or of the other stream.
#[derive(Debug)]
pub enum MergedEvent<E> {
    /// An event of the node.
    Dora(super::Event),
    /// An event of the other stream.
    External(E),
}

/// One of two values.
#[derive(Debug)]
pub enum Either<A, B> {
    /// The first one.
    First(A),
    /// The second one.
    Second(B),
}

impl<A> Either<A, A> {
    /// The value, whichever it is.
    pub fn flatten(self) -> A {
        match self {
            Self::First(value) | Self::Second(value) => value,
        }
    }
}

/// A stream that another one can be merged into.
pub trait MergeExternal<'a, E> {
    /// The events of the merged stream.
    type Item;

    /// Merges the streams. Their events have no order among each other.
    fn merge_external(
        self,
        external_events: impl Stream<Item = E> + Unpin + 'a,
    ) -> Box<dyn Stream<Item = Self::Item> + Unpin + 'a>;
}

/// [`MergeExternal`] for streams that other threads may use.
pub trait MergeExternalSend<'a, E> {
    /// The events of the merged stream.
    type Item;

    /// Merges the streams. Their events have no order among each other.
    fn merge_external_send(
        self,
        external_events: impl Stream<Item = E> + Unpin + Send + Sync + 'a,
    ) -> Box<dyn Stream<Item = Self::Item> + Unpin + Send + Sync + 'a>;
}

/// The further stream of an already merged one.
fn further<E, F>(event: MergedEvent<E>) -> MergedEvent<Either<E, F>> {
    match event {
        MergedEvent::Dora(event) => MergedEvent::Dora(event),
        MergedEvent::External(event) => MergedEvent::External(Either::First(event)),
    }
}

impl<'a, E: 'static> MergeExternal<'a, E> for super::EventStream {
    type Item = MergedEvent<E>;

    fn merge_external(
        self,
        external_events: impl Stream<Item = E> + Unpin + 'a,
    ) -> Box<dyn Stream<Item = Self::Item> + Unpin + 'a> {
        let external = external_events.map(MergedEvent::External);
        Box::new(select(self.map(MergedEvent::Dora), external))
    }
}

impl<'a, E: 'static> MergeExternalSend<'a, E> for super::EventStream {
    type Item = MergedEvent<E>;

    fn merge_external_send(
        self,
        external_events: impl Stream<Item = E> + Unpin + Send + Sync + 'a,
    ) -> Box<dyn Stream<Item = Self::Item> + Unpin + Send + Sync + 'a> {
        let external = external_events.map(MergedEvent::External);
        Box::new(select(self.map(MergedEvent::Dora), external))
    }
}

impl<'a, E: 'a, F: 'a, S> MergeExternal<'a, F> for S
where
    S: Stream<Item = MergedEvent<E>> + Unpin + 'a,
{
    type Item = MergedEvent<Either<E, F>>;

    fn merge_external(
        self,
        external_events: impl Stream<Item = F> + Unpin + 'a,
    ) -> Box<dyn Stream<Item = Self::Item> + Unpin + 'a> {
        let external = external_events.map(|event| MergedEvent::External(Either::Second(event)));
        Box::new(select(self.map(further), external))
    }
}

impl<'a, E: 'a, F: 'a, S> MergeExternalSend<'a, F> for S
where
    S: Stream<Item = MergedEvent<E>> + Unpin + Send + Sync + 'a,
{
    type Item = MergedEvent<Either<E, F>>;

    fn merge_external_send(
        self,
        external_events: impl Stream<Item = F> + Unpin + Send + Sync + 'a,
    ) -> Box<dyn Stream<Item = Self::Item> + Unpin + Send + Sync + 'a> {
        let external = external_events.map(|event| MergedEvent::External(Either::Second(event)));
        Box::new(select(self.map(further), external))
    }
}
