//! Memory for samples as they arrive. The application can supply it, so that a sample is decrypted
//! and decoded into the very block that its consumers will map.

use std::{
    any::Any,
    fmt,
    ops::{Deref, Range},
};

use bytes::Bytes;

/// Supplies memory for samples.
///
/// ```
/// use nervure_link::memory::{SampleBuffer, Memory, NoMemory};
///
/// /// Up to a megabyte at once, on the heap.
/// struct Small;
///
/// impl Memory for Small {
///     fn allocate(&mut self, _stream: u32, bytes: usize) -> Result<Box<dyn SampleBuffer>, NoMemory> {
///         if bytes <= 1 << 20 { Ok(Box::new(vec![0; bytes])) } else { Err(NoMemory) }
///     }
/// }
/// ```
pub trait Memory: Send {
    /// Returns a buffer of exactly `bytes` for a sample that begins to arrive. It may hold
    /// anything: all of it is written before the sample is delivered. When a sample is given up,
    /// its buffer is dropped, written in part.
    ///
    /// The sum of all buffers stays within the grants to the peer; see
    /// [`ReceiverConfig`](crate::receiver::ReceiverConfig). Within them, the peer decides on
    /// `bytes`.
    ///
    /// # Errors
    /// When there is no memory now. Symbols of the sample are dropped, and the next one asks again.
    fn allocate(&mut self, stream: u32, bytes: usize) -> Result<Box<dyn SampleBuffer>, NoMemory>;
}

/// There is no memory for a sample now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for a sample")]
pub struct NoMemory;

/// A buffer for one sample: a vector, shared memory, or anything else with bytes.
pub trait SampleBuffer: AsRef<[u8]> + AsMut<[u8]> + Any + Send + Sync {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Any + Send + Sync> SampleBuffer for T {}

/// Allocates on the heap, without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

impl Memory for Heap {
    fn allocate(&mut self, _stream: u32, bytes: usize) -> Result<Box<dyn SampleBuffer>, NoMemory> {
        Ok(Box::new(vec![0; bytes]))
    }
}

/// The bytes of a sample that has arrived.
pub struct Payload(Box<dyn SampleBuffer>);

impl Payload {
    pub(crate) fn new(block: Box<dyn SampleBuffer>) -> Self {
        Self(block)
    }

    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut (*self.0).as_mut()[range]
    }

    /// Returns the buffer that [`Memory::allocate`] gave, or `self` if it is of another type.
    pub fn into_block<T: SampleBuffer>(self) -> Result<T, Self> {
        if (&*self.0 as &dyn Any).is::<T>() {
            let block: Box<dyn Any> = self.0;
            return Ok(*block.downcast().expect("it is of this type"));
        }
        Err(self)
    }

    /// Returns the bytes without a copy; the buffer is dropped with the last of them.
    pub fn into_bytes(self) -> Bytes {
        self.into_block::<Vec<u8>>()
            .map_or_else(Bytes::from_owner, Bytes::from)
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Payload {}

impl PartialEq<Payload> for Bytes {
    fn eq(&self, other: &Payload) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{
        qos::{Delivery, Qos},
        receiver::{LinkSample, ReceiverEvent},
        session::{Session, SessionConfig, SessionEvent},
    };

    /// A pool that first returns the prepared results, and counts the buffers in use.
    struct Pool {
        in_vain: Vec<Result<usize, NoMemory>>,
        out: Arc<AtomicUsize>,
    }

    struct PoolBlock {
        bytes: Vec<u8>,
        out: Arc<AtomicUsize>,
    }

    impl Memory for Pool {
        fn allocate(
            &mut self,
            stream: u32,
            bytes: usize,
        ) -> Result<Box<dyn SampleBuffer>, NoMemory> {
            assert_ne!(stream, 0, "control messages are not put here");
            let bytes = self.in_vain.pop().unwrap_or(Ok(bytes))?;
            self.out.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(PoolBlock {
                bytes: vec![0xee; bytes],
                out: Arc::clone(&self.out),
            }))
        }
    }

    impl AsRef<[u8]> for PoolBlock {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl AsMut<[u8]> for PoolBlock {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.bytes
        }
    }

    impl Drop for PoolBlock {
        fn drop(&mut self) {
            self.out.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sends samples of these lengths over a path that loses every fifth packet, and returns those
    /// that arrive.
    fn arrive(qos: Qos, memory: Pool, lengths: &[usize]) -> (Vec<LinkSample>, Session) {
        let mut now = Instant::now();
        let [mut sender, mut receiver] =
            [1, 2].map(|seed| Session::new(SessionConfig::default(), seed, now));
        receiver.set_memory(Box::new(memory));
        let stream = sender.open(now, "stream", qos).expect("the name is short");
        let mut lengths = lengths.iter().enumerate();
        let (mut arrived, mut packets) = (Vec::new(), 0);
        for _ in 0..3000 {
            now += Duration::from_millis(1);
            if sender.sender().streams().has_room(stream)
                && let Some((number, length)) = lengths.next()
            {
                sender
                    .send(now, stream, vec![number as u8; *length].into())
                    .unwrap();
            }
            for session in [&mut sender, &mut receiver] {
                session.handle_timeout(now);
            }
            let mut packet = Vec::new();
            while sender.next_datagram(now, 1200, &mut packet) {
                packets += 1;
                if packets % 5 != 0 {
                    receiver.on_datagram(now, None, &packet);
                }
                packet.clear();
            }
            while receiver.next_datagram(now, 1200, &mut packet) {
                sender.on_datagram(now, None, &std::mem::take(&mut packet));
            }
            while let Some(event) = receiver.poll_event() {
                if let SessionEvent::Receiver(ReceiverEvent::Readable(stream)) = event {
                    arrived.extend(receiver.take(now, stream));
                }
            }
        }
        (arrived, receiver)
    }

    #[test]
    fn samples_are_put_where_the_application_says() {
        let out = Arc::new(AtomicUsize::new(0));
        let pool = Pool {
            in_vain: Vec::new(),
            out: Arc::clone(&out),
        };
        let lengths = [1, 5000, 0, 40_000, 1199];
        let (arrived, receiver) = arrive(Qos::new(Delivery::keep_all(2)), pool, &lengths);
        assert_eq!(arrived.len(), lengths.len());
        assert_eq!(out.load(Ordering::Relaxed), lengths.len(), "one block each");
        for ((number, length), sample) in lengths.iter().enumerate().zip(arrived) {
            let block = sample.payload.into_block::<PoolBlock>().unwrap();
            assert_eq!(block.bytes, vec![number as u8; *length]);
        }
        drop(receiver);
        assert_eq!(out.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_sample_waits_for_memory_and_takes_none_that_does_not_fit() {
        let out = Arc::new(AtomicUsize::new(0));
        let in_vain = vec![Ok(5001), Ok(4999), Ok(0), Err(NoMemory), Err(NoMemory)];
        let pool = Pool {
            in_vain,
            out: Arc::clone(&out),
        };
        let (arrived, receiver) = arrive(Qos::new(Delivery::keep_all(1)), pool, &[5000, 5000]);
        assert_eq!(
            arrived
                .iter()
                .map(|sample| sample.payload[4999])
                .collect::<Vec<_>>(),
            [0, 1]
        );
        assert_eq!(receiver.receiver().link_counters().refused_symbols, 5);
        drop((arrived, receiver));
        assert_eq!(out.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_given_up_gives_its_memory_back() {
        let out = Arc::new(AtomicUsize::new(0));
        let pool = Pool {
            in_vain: Vec::new(),
            out: Arc::clone(&out),
        };
        let (arrived, receiver) = arrive(
            Qos::new(Delivery::BestEffort {
                depth: std::num::NonZeroU32::MIN,
            }),
            pool,
            &[20_000; 50],
        );
        assert!(
            arrived.len() < 10,
            "{} of 50 samples of 17 packets, unrepaired",
            arrived.len()
        );
        drop(arrived);
        assert_eq!(
            out.load(Ordering::Relaxed) as u64,
            receiver.receiver().incoming().totals().queued
        );
    }

    #[test]
    fn a_payload_is_its_memory_again() {
        let payload = Payload::new(Box::new([7_u8; 4]));
        assert_eq!(&payload[..], [7; 4]);
        let payload = payload.into_block::<Vec<u8>>().unwrap_err();
        assert_eq!(payload.into_block::<[u8; 4]>().unwrap(), [7; 4]);

        let vector = vec![1_u8, 2];
        let address = vector.as_ptr();
        let bytes = Payload::new(Box::new(vector)).into_bytes();
        assert_eq!((bytes.as_ptr(), &bytes[..]), (address, &[1, 2][..]));
        assert_eq!(Payload::new(Box::new([3_u8])).into_bytes(), [3][..]);
    }
}
