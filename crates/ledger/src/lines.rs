use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::event::LINE_BYTES_MAX;
use crate::segment::{Segment, list_segments, segment_name};
use crate::state::LEDGER;
use crate::{FileFault, StateDir};

const BUFFER_BYTES: usize = 64 << 10;

/// A reader of the lines of all segments, in order, in bounded memory and without taking a lock.
/// After the end it can be polled again, and goes on with lines that were appended meanwhile.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    directory: Option<OwnedFd>,
    current: Option<Current>,
    /// The segment after the current one, once seen: then the current one is read to its end once
    /// more, for it may have grown before.
    next: Option<u32>,
    /// The first segment to read: those before are passed over.
    first: u32,
    line: Vec<u8>,
}

#[derive(Debug)]
struct Current {
    number: u32,
    reader: BufReader<File>,
    /// The offset of the next line.
    offset: u64,
    /// The number of bytes after the last newline.
    unfinished: u64,
}

/// One line, or the bytes in the place of one.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    pub(crate) content: LineContent<'a>,
}

#[derive(Debug)]
pub(crate) enum LineContent<'a> {
    /// A line, without its newline.
    Complete(&'a [u8]),
    /// The segment ends without a newline, and another segment follows.
    Unfinished(u64),
    /// The line is longer than the limit; this many bytes were passed over.
    TooLong(u64),
}

enum Advance {
    Line { bytes: u64, complete: bool },
    End,
}

impl Lines {
    /// Starts at this byte of this segment. A ledger that does not exist has no lines.
    pub(crate) fn from(state: &StateDir, segment: u32, offset: u64) -> Result<Self, FileFault> {
        let path = state.path().join(LEDGER);
        let directory = match state.subdirectory(LEDGER, false) {
            Ok(directory) => Some(directory),
            Err(fault) if fault.is_not_found() => None,
            Err(fault) => return Err(fault),
        };
        let mut lines = Self {
            path,
            directory,
            current: None,
            next: None,
            first: segment.max(1),
            line: Vec::new(),
        };
        if offset > 0 {
            lines.open(segment.max(1), offset)?;
        }
        Ok(lines)
    }

    /// Reads the next line; `None` at the end of the complete ones.
    pub(crate) fn next_line(&mut self) -> Result<Option<Line<'_>>, FileFault> {
        loop {
            let Some(current) = &mut self.current else {
                match self.following(self.first.saturating_sub(1))? {
                    Some(number) => self.open(number, 0)?,
                    None => return Ok(None),
                }
                continue;
            };
            let (number, offset) = (current.number, current.offset);
            let path = || self.path.join(segment_name(number));
            match advance(current, &mut self.line).map_err(FileFault::on("read", path()))? {
                Advance::Line { bytes, complete } => {
                    let content = if complete {
                        LineContent::Complete(self.line.strip_suffix(b"\n").unwrap_or(&self.line))
                    } else {
                        LineContent::TooLong(bytes)
                    };
                    return Ok(Some(Line {
                        segment: number,
                        offset,
                        content,
                    }));
                }
                Advance::End => {}
            }
            let unfinished = current.unfinished;
            match self.next.take() {
                Some(next) => {
                    self.open(next, 0)?;
                    if unfinished > 0 {
                        return Ok(Some(Line {
                            segment: number,
                            offset,
                            content: LineContent::Unfinished(unfinished),
                        }));
                    }
                }
                None => match self.following(number)? {
                    Some(next) => self.next = Some(next),
                    None => return Ok(None),
                },
            }
        }
    }

    /// Returns the segment and offset that reading has reached, and the number of bytes there that
    /// are not a complete line.
    pub(crate) fn place(&self) -> (u32, u64, u64) {
        self.current.as_ref().map_or((0, 0, 0), |current| {
            (current.number, current.offset, current.unfinished)
        })
    }

    /// Returns the number of the segment after this one: usually the next number.
    fn following(&self, number: u32) -> Result<Option<u32>, FileFault> {
        let Some(directory) = &self.directory else {
            return Ok(None);
        };
        let listed = list_segments(directory, &self.path)?;
        Ok(listed.into_iter().find(|listed| *listed > number))
    }

    fn open(&mut self, number: u32, offset: u64) -> Result<(), FileFault> {
        let path = self.path.join(segment_name(number));
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let Some(segment) = Segment::open(directory, &self.path, number, false)? else {
            // It was there in the listing: only a person removes segments.
            self.current = None;
            self.first = number + 1;
            return Ok(());
        };
        // This is the only holder of a file that was just opened.
        let Some(file) = std::sync::Arc::into_inner(segment.file) else {
            return Ok(());
        };
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        if offset > 0 {
            reader
                .seek(SeekFrom::Start(offset))
                .map_err(FileFault::on("read", path))?;
        }
        self.current = Some(Current {
            number,
            reader,
            offset,
            unfinished: 0,
        });
        Ok(())
    }
}

/// Reads one line. An incomplete line is left for the next call, unless it is longer than the
/// limit.
fn advance(current: &mut Current, line: &mut Vec<u8>) -> std::io::Result<Advance> {
    line.clear();
    let limit = LINE_BYTES_MAX as u64;
    let mut bytes = (&mut current.reader).take(limit).read_until(b'\n', line)? as u64;
    if line.ends_with(b"\n") {
        current.offset += bytes;
        current.unfinished = 0;
        return Ok(Advance::Line {
            bytes,
            complete: true,
        });
    }
    if bytes < limit {
        current.unfinished = bytes;
        current.reader.seek(SeekFrom::Start(current.offset))?;
        return Ok(Advance::End);
    }
    loop {
        let chunk = current.reader.fill_buf()?;
        let newline = chunk.iter().position(|byte| *byte == b'\n');
        let passed = newline.map_or(chunk.len(), |at| at + 1);
        let at_end = chunk.is_empty() || newline.is_some();
        current.reader.consume(passed);
        bytes += passed as u64;
        if at_end {
            current.offset += bytes;
            current.unfinished = 0;
            return Ok(Advance::Line {
                bytes,
                complete: false,
            });
        }
    }
}
