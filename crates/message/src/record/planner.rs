//! Lays out an array whose values are elsewhere.

use std::ops::Range;

use super::error::RecordError;
use crate::array::{ArrayLayout, Places, length_fits};
use crate::wire::{Head, put_number};

/// Collects the numbers and places of an array, in the order of [`crate::array`].
#[derive(Debug, Default)]
pub struct ArrayPlanner {
    numbers: Head,
    places: Places,
    longest: usize,
}

impl ArrayPlanner {
    /// Adds a number that the schema does not determine.
    pub fn number(&mut self, number: usize) {
        put_number(&mut self.numbers, number as u64);
    }

    /// Adds the length of an array.
    pub fn length(&mut self, length: usize) {
        self.longest = self.longest.max(length);
    }

    /// Places a buffer of a type whose alignment is at most 8.
    ///
    /// # Errors
    /// [`RecordError::TooLarge`].
    pub fn place(&mut self, bytes: usize) -> Result<Range<usize>, RecordError> {
        self.places.next(bytes, 1).ok_or(RecordError::TooLarge)
    }

    /// The layout of an array of this length, and the length of its payload.
    ///
    /// # Errors
    /// [`RecordError::Length`].
    pub fn finish(self, length: usize) -> Result<(ArrayLayout, usize), RecordError> {
        let payload_bytes = self.places.end();
        if !length_fits(self.longest, payload_bytes) {
            return Err(RecordError::Length {
                length: self.longest,
            });
        }
        let numbers = self.numbers;
        Ok((ArrayLayout { length, numbers }, payload_bytes))
    }
}
