//! Streams of bzip2, decoded. There is no specification but its program, and descriptions of it; the
//! names are theirs.

use std::io::{self, Read};

/// The magic numbers of a block, and of the end of a stream: π, and its square root.
const BLOCK: u64 = 0x3141_5926_5359;
const END: u64 = 0x1772_4538_5090;
/// The longest code of a symbol, bits.
const CODE_BITS_MAX: u32 = 20;
/// The symbols that are coded by one table before the next selector.
const GROUP: usize = 50;

/// A reader of streams of bzip2, one after the other.
pub(crate) struct Bzip2<'a> {
    bits: Bits<'a>,
    /// The most bytes of a block; `None` between two streams.
    block_bytes_max: Option<usize>,
    block: Option<Block>,
    /// The checksum of all blocks.
    sum: u32,
    streams: u64,
}

impl<'a> Bzip2<'a> {
    pub(crate) fn new(content: &'a [u8]) -> Self {
        Self {
            bits: Bits {
                rest: content,
                held: 0,
                count: 0,
            },
            block_bytes_max: None,
            block: None,
            sum: 0,
            streams: 0,
        }
    }

    /// Reads the next block's head and symbols; `None` after the last stream.
    fn next_block(&mut self) -> io::Result<Option<Block>> {
        loop {
            let Some(block_bytes_max) = self.block_bytes_max else {
                if self.streams > 0 && self.bits.is_over() {
                    return Ok(None);
                }
                let head = self.bits.take(24)?;
                let level = self.bits.take(8)?;
                if head != 0x42_5a_68 || !(0x31..=0x39).contains(&level) {
                    return Err(damaged("it is no stream"));
                }
                self.block_bytes_max = Some((level as usize - 0x30) * 100_000);
                self.streams += 1;
                continue;
            };
            let magic = u64::from(self.bits.take(24)?) << 24 | u64::from(self.bits.take(24)?);
            match magic {
                BLOCK => return Block::read(&mut self.bits, block_bytes_max).map(Some),
                END if self.bits.take(32)? == self.sum => {
                    self.bits.align();
                    (self.block_bytes_max, self.sum) = (None, 0);
                }
                END => return Err(damaged("its checksum is another")),
                _ => return Err(damaged("it has no block there")),
            }
        }
    }
}

impl Read for Bzip2<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(block) = &mut self.block {
                let read = block.fill(to);
                if read > 0 {
                    return Ok(read);
                }
                let sum = !block.sum;
                if sum != block.expected {
                    return Err(damaged("the checksum of a block is another"));
                }
                self.sum = self.sum.rotate_left(1) ^ sum;
                self.block = None;
            }
            match self.next_block()? {
                Some(block) => self.block = Some(block),
                None => return Ok(0),
            }
        }
    }
}

/// A block, whose bytes are yet to be put in order.
struct Block {
    /// For each place, the next one and, in the lowest eight bits, the byte there.
    order: Vec<u32>,
    at: usize,
    left: usize,
    /// The last byte, how often it came, and how often it is yet to come.
    last: u8,
    run: u8,
    repeat: u32,
    sum: u32,
    expected: u32,
}

impl Block {
    fn read(bits: &mut Bits<'_>, bytes_max: usize) -> io::Result<Self> {
        let expected = bits.take(32)?;
        if bits.take(1)? != 0 {
            return Err(damaged("it is randomized, as of old"));
        }
        let origin = bits.take(24)? as usize;
        let mut used = Vec::with_capacity(256);
        let groups = bits.take(16)?;
        for group in (0..16_u32).filter(|group| groups >> (15 - group) & 1 == 1) {
            let own = bits.take(16)?;
            let own = (0..16_u32).filter(|one| own >> (15 - one) & 1 == 1);
            used.extend(own.filter_map(|one| u8::try_from(group * 16 + one).ok()));
        }
        if used.is_empty() {
            return Err(damaged("a block has no symbols"));
        }
        let mut order = symbols(bits, used, bytes_max)?;
        let left = order.len();
        if origin >= left {
            return Err(damaged("a block begins nowhere"));
        }
        put_in_order(&mut order);
        let at = order.get(origin).map_or(0, |next| (next >> 8) as usize);
        Ok(Self {
            order,
            at,
            left,
            last: 0,
            run: 0,
            repeat: 0,
            sum: u32::MAX,
            expected,
        })
    }

    /// Fills a buffer; returns 0 at the end of the block.
    fn fill(&mut self, to: &mut [u8]) -> usize {
        let mut count = 0;
        for out in to.iter_mut() {
            if self.repeat > 0 {
                self.repeat -= 1;
            } else {
                let Some(byte) = self.next_byte() else { break };
                self.run = match byte == self.last && self.run > 0 {
                    true => self.run + 1,
                    false => 1,
                };
                self.last = byte;
                if self.run == 4 {
                    self.repeat = self.next_byte().map_or(0, u32::from);
                    self.run = 0;
                }
            }
            *out = self.last;
            self.sum = summed(self.sum, self.last);
            count += 1;
        }
        count
    }

    fn next_byte(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        let entry = *self.order.get(self.at)?;
        self.at = (entry >> 8) as usize;
        Some((entry & 0xff) as u8)
    }
}

/// Reads the symbols of a block: bytes as places in a list of those lately used, and runs of the first.
fn symbols(bits: &mut Bits<'_>, mut used: Vec<u8>, bytes_max: usize) -> io::Result<Vec<u32>> {
    let (tables, selectors) = tables(bits, used.len() + 2)?;
    let end = used.len() + 1;
    let mut order: Vec<u32> = Vec::new();
    let (mut run, mut weight) = (0_usize, 1_usize);
    let too_many = || damaged("a block is too large");
    for selector in selectors {
        let table = tables
            .get(selector)
            .ok_or_else(|| damaged("no such table"))?;
        for _ in 0..GROUP {
            let symbol = table.symbol(bits)?;
            if symbol < 2 {
                run += weight << symbol;
                weight <<= 1;
                if run > bytes_max {
                    return Err(too_many());
                }
                continue;
            }
            if run > 0 {
                let byte = used.first().copied().map_or(0, u32::from);
                if order.len() + run > bytes_max {
                    return Err(too_many());
                }
                order.resize(order.len() + run, byte);
            }
            (run, weight) = (0, 1);
            if symbol == end {
                return Ok(order);
            }
            if order.len() >= bytes_max {
                return Err(too_many());
            }
            let lately = used.get_mut(..symbol);
            let lately = lately.ok_or_else(|| damaged("no such symbol"))?;
            lately.rotate_right(1);
            order.push(lately.first().copied().map_or(0, u32::from));
        }
    }
    Err(damaged("a block has no end"))
}

/// Reads the tables of a block, and which of them is used for each group.
fn tables(bits: &mut Bits<'_>, symbols: usize) -> io::Result<(Vec<Table>, Vec<usize>)> {
    let count = bits.take(3)? as usize;
    let groups = bits.take(15)?;
    if !(2..=6).contains(&count) || groups == 0 {
        return Err(damaged("a block has no tables"));
    }
    let mut lately: Vec<usize> = (0..count).collect();
    let mut selectors = Vec::new();
    for _ in 0..groups {
        let mut place = 0;
        while bits.take(1)? == 1 {
            place += 1;
            if place >= count {
                return Err(damaged("no such table"));
            }
        }
        if let Some(lately) = lately.get_mut(..=place) {
            lately.rotate_right(1);
        }
        selectors.extend(lately.first());
    }
    let mut tables = Vec::new();
    for _ in 0..count {
        let mut length = bits.take(5)?;
        let mut lengths = Vec::with_capacity(symbols);
        for _ in 0..symbols {
            loop {
                if !(1..=CODE_BITS_MAX).contains(&length) {
                    return Err(damaged("a code has no such length"));
                }
                if bits.take(1)? == 0 {
                    break;
                }
                // Up or down by one; 0 is found above.
                length = match bits.take(1)? {
                    0 => length + 1,
                    _ => length - 1,
                };
            }
            lengths.push(length);
        }
        tables.push(Table::of(&lengths));
    }
    Ok((tables, selectors))
}

/// Makes of bytes a list of which byte follows which (the inverse of Burrows and Wheeler's transform).
fn put_in_order(order: &mut [u32]) {
    let mut starts = [0_u32; 256];
    for byte in order.iter() {
        if let Some(count) = starts.get_mut((byte & 0xff) as usize) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += std::mem::replace(start, sum);
    }
    for at in 0..order.len() {
        let byte = order.get(at).map_or(0, |entry| entry & 0xff);
        let Some(start) = starts.get_mut(byte as usize) else {
            continue;
        };
        if let (Some(entry), Ok(at)) = (order.get_mut(*start as usize), u32::try_from(at)) {
            *entry |= at << 8;
        }
        *start += 1;
    }
}

/// A table of codes, shortest first (a canonical Huffman code).
struct Table {
    /// For each length, the first code, the count of codes, and the place of the first one's symbol.
    lengths: Vec<(u32, u32, u32)>,
    symbols: Vec<usize>,
}

impl Table {
    fn of(lengths: &[u32]) -> Self {
        let mut table = Self {
            lengths: Vec::new(),
            symbols: Vec::new(),
        };
        let (mut code, mut place) = (0_u32, 0_u32);
        for length in 1..=CODE_BITS_MAX {
            let own = lengths
                .iter()
                .enumerate()
                .filter(|(_, one)| **one == length);
            let before = table.symbols.len();
            table.symbols.extend(own.map(|(symbol, _)| symbol));
            let count = u32::try_from(table.symbols.len() - before).unwrap_or_default();
            table.lengths.push((code, count, place));
            code = (code + count) << 1;
            place += count;
        }
        table
    }

    fn symbol(&self, bits: &mut Bits<'_>) -> io::Result<usize> {
        let mut code = 0;
        for (first, count, place) in &self.lengths {
            code = code << 1 | bits.take(1)?;
            if let Some(own) = code.checked_sub(*first).filter(|own| own < count) {
                let symbol = self.symbols.get((place + own) as usize);
                return symbol.copied().ok_or_else(|| damaged("no such symbol"));
            }
        }
        Err(damaged("no such code"))
    }
}

/// Bits, the highest of a byte first.
struct Bits<'a> {
    rest: &'a [u8],
    held: u64,
    count: u32,
}

impl Bits<'_> {
    /// Takes up to 32 bits.
    fn take(&mut self, count: u32) -> io::Result<u32> {
        while self.count < count {
            let (byte, rest) = self
                .rest
                .split_first()
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            self.held = self.held << 8 | u64::from(*byte);
            (self.count, self.rest) = (self.count + 8, rest);
        }
        self.count -= count;
        let taken = self.held >> self.count & ((1 << count) - 1);
        u32::try_from(taken).map_err(io::Error::other)
    }

    /// Drops the rest of a byte.
    fn align(&mut self) {
        self.count -= self.count % 8;
    }

    fn is_over(&self) -> bool {
        self.rest.is_empty() && self.count == 0
    }
}

/// Adds a byte to a checksum (CRC-32, the highest bit first).
fn summed(sum: u32, byte: u8) -> u32 {
    const TABLE: [u32; 256] = table_of_sums();
    let place = (sum >> 24) as u8 ^ byte;
    sum << 8 ^ TABLE.get(usize::from(place)).copied().unwrap_or_default()
}

#[expect(clippy::indexing_slicing, reason = "computed by the compiler")]
const fn table_of_sums() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let (mut sum, mut bit) = ((at as u32) << 24, 0);
        while bit < 8 {
            sum = if sum >> 31 == 1 {
                sum << 1 ^ 0x04c1_1db7
            } else {
                sum << 1
            };
            bit += 1;
        }
        table[at] = sum;
        at += 1;
    }
    table
}

fn damaged(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
