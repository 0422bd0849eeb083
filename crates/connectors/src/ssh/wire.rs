//! The data types of SSH (RFC 4251, section 5), decoded and encoded.

/// A decoder over the rest of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    /// Reads a string, of any bytes.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let mut here = *self;
        let length = usize::try_from(here.number()?).ok()?;
        let (first, rest) = here.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    /// Reads a boolean, 0 or 1 only: other values would be another encoding of the same.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Reads exactly these bytes.
    pub(crate) fn exact(&mut self, bytes: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(bytes)?;
        Some(())
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// An encoder of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    pub(crate) fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// Writes a string. No string that is encoded here is too long for its length field.
    pub(crate) fn string(self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.number(length).exact(bytes)
    }

    pub(crate) fn exact(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ssh_wire_round_trips(text in any::<Vec<u8>>(), number: u32, byte: u8, cut: usize) {
            let written = Writer::new().string(&text).number(number).byte(byte).done();
            let mut reader = Reader::new(&written);
            prop_assert_eq!(reader.string(), Some(&text[..]));
            prop_assert_eq!(reader.number(), Some(number));
            prop_assert!(reader.end().is_none());
            prop_assert_eq!(reader.byte(), Some(byte));
            prop_assert!(reader.end().is_some());
            // Nothing is read beyond the end.
            let cut = cut % written.len();
            let mut reader = Reader::new(&written[..cut]);
            let all = (reader.string(), reader.number(), reader.byte());
            prop_assert!(all.0.is_none() || all.1.is_none() || all.2.is_none());
        }
    }
}
