//! Sending: publishers, envelopes and loans.

mod envelope;
mod loan;
mod publisher;

pub use self::{
    envelope::Envelope,
    loan::{Loan, LoanSlice},
    publisher::{Publisher, Unsent, Written},
};
