//! Encoding of numbers, byte strings and lists in a fixed form.

/// The error for a message that is not of the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The message ends too early.
    Short,
    /// The message goes on after its end.
    Long,
    /// A string or list is longer than allowed.
    TooMany,
    /// A tag is unknown.
    Tag,
    /// A byte string has a NUL, which no path or argument can have.
    Nul,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Short => "the message ends too early",
            Self::Long => "the message goes on behind its end",
            Self::TooMany => "the message holds more than allowed",
            Self::Tag => "the message holds an unknown tag",
            Self::Nul => "a text in the message holds a NUL byte",
        })
    }
}

impl std::error::Error for Malformed {}

/// The longest single text, bytes: an argument or a variable, as execve(2) takes.
pub const TEXT_BYTES_MAX: usize = 128 * 1024;
/// The longest list.
pub const LIST_MAX: usize = 65_536;

/// An encoder of one message.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Writes a number.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Writes a number.
    pub fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    /// Writes a number.
    pub fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    /// Writes a number.
    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// Writes a byte string, its length first.
    pub fn text(&mut self, text: &[u8]) {
        self.u32(text.len() as u32);
        self.0.extend(text);
    }

    /// Writes a list, its length first.
    pub fn list<T>(&mut self, list: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.u32(list.len() as u32);
        for item in list {
            write(self, item);
        }
    }
}

/// A decoder of one message; each step is [`Malformed`] where the message is not as expected.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Begins with a whole message.
    #[must_use]
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Short)
    }

    /// Reads a number.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a flag, 0 or 1.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Tag),
        }
    }

    /// Reads a number.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads a number.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a number.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a byte string that can become a C string.
    pub fn text(&mut self) -> Result<Vec<u8>, Malformed> {
        let text = self.bytes()?;
        if text.contains(&0) {
            Err(Malformed::Nul)
        } else {
            Ok(text)
        }
    }

    /// Reads a byte string.
    pub fn bytes(&mut self) -> Result<Vec<u8>, Malformed> {
        let count = self.u32()? as usize;
        if count > TEXT_BYTES_MAX {
            return Err(Malformed::TooMany);
        }
        Ok(self.take(count)?.to_vec())
    }

    /// Reads a list.
    pub fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        if count > LIST_MAX {
            return Err(Malformed::TooMany);
        }
        // No memory is set aside on the word of the message: the list grows
        // with what is really there.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    /// Checks that nothing follows.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Long)
        }
    }
}
