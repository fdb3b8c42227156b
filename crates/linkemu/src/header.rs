//! The properties of a packet that the air reads.

/// The parts of a packet that decide about its fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its length on the air, IP header included.
    pub bytes: u32,
    /// The flow to which it belongs, such as a hash of addresses and ports.
    pub flow: u64,
    /// Its ECN field.
    pub ecn: Ecn,
}

impl From<u32> for Header {
    /// A packet of flow 0 without ECN.
    fn from(bytes: u32) -> Self {
        Self {
            bytes,
            flow: 0,
            ecn: Ecn::NotCapable,
        }
    }
}

/// Explicit congestion notification in the IP header (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable: an AQM drops it.
    #[default]
    NotCapable,
    /// ECN-capable, ECT(0).
    Capable,
    /// ECN-capable, ECT(1).
    CapableL4s,
    /// Marked by an AQM on its way.
    CongestionExperienced,
}

impl Ecn {
    /// From the two lowest bits of the traffic class.
    pub fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::CapableL4s,
            0b10 => Self::Capable,
            _ => Self::CongestionExperienced,
        }
    }

    /// The two lowest bits of the traffic class.
    pub fn bits(self) -> u8 {
        match self {
            Self::NotCapable => 0b00,
            Self::CapableL4s => 0b01,
            Self::Capable => 0b10,
            Self::CongestionExperienced => 0b11,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_header() {
        for bits in 0..4 {
            assert_eq!(Ecn::from_bits(bits).bits(), bits);
        }
    }
}
