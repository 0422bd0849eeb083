//! Comparison and copying of file contents, with holes kept as holes. A hostile file can claim to
//! be of any size; only the parts that hold data cost anything.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

const BUFFER_BYTES: usize = 256 << 10;
/// The longest file whose holes and blocks are not worth looking for.
const SMALL_BYTES_MAX: u64 = 16 << 10;

/// Returns whether two files of the same size hold the same bytes.
pub(crate) fn equal(left: &File, right: &File, bytes: u64) -> io::Result<bool> {
    let longest = usize::try_from(bytes).map_or(BUFFER_BYTES, |bytes| bytes.min(BUFFER_BYTES));
    let mut left_buffer = vec![0; longest];
    let mut right_buffer = vec![0; longest];
    let mut at = 0;
    while at < bytes {
        // Where both have a hole, both read as zeros.
        let left_data = data_from(left, at)?.unwrap_or(bytes);
        let right_data = data_from(right, at)?.unwrap_or(bytes);
        at = left_data.min(right_data);
        if at >= bytes {
            break;
        }
        let wanted =
            usize::try_from(bytes - at).map_or(BUFFER_BYTES, |rest| rest.min(BUFFER_BYTES));
        let (Some(left_part), Some(right_part)) = (
            left_buffer.get_mut(..wanted),
            right_buffer.get_mut(..wanted),
        ) else {
            break;
        };
        let read_left = read_full(left, left_part, at)?;
        let read_right = read_full(right, right_part, at)?;
        if read_left != read_right || left_part != right_part {
            return Ok(false);
        }
        if read_left < wanted {
            break;
        }
        at += wanted as u64;
    }
    Ok(true)
}

/// Passes a file's content to `show` part by part: each begins at a multiple of the same length,
/// and those that lie within a hole are left out.
pub(crate) fn parts(file: &File, bytes: u64, mut show: impl FnMut(u64, &[u8])) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = 0;
    while at < bytes {
        let Some(data) = data_from(file, at)?.filter(|data| *data < bytes) else {
            break;
        };
        at = data - data % BUFFER_BYTES as u64;
        let read = read_full(file, &mut buffer, at)?;
        show(at, buffer.get(..read).unwrap_or_default());
        at += BUFFER_BYTES as u64;
    }
    Ok(())
}

/// Copies a file's content into an empty file: by shared blocks where the file system can, else
/// only the parts that hold data.
pub(crate) fn copy(from: &File, to: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if bytes <= SMALL_BYTES_MAX {
        return copy_by_hand(from, to, 0, bytes);
    }
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    rustix::fs::ftruncate(to, bytes)?;
    let mut at = 0;
    while at < bytes {
        let Some(start) = data_from(from, at)?.filter(|start| *start < bytes) else {
            break;
        };
        let end = hole_from(from, start)?.min(bytes);
        copy_stretch(from, to, start, end)?;
        at = end.max(start + 1);
    }
    Ok(())
}

fn copy_stretch(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        let wanted = usize::try_from(end - read_at)
            .unwrap_or(usize::MAX)
            .min(1 << 30);
        match rustix::fs::copy_file_range(
            from.as_fd(),
            Some(&mut read_at),
            to.as_fd(),
            Some(&mut write_at),
            wanted,
        ) {
            // The file became shorter meanwhile; the caller looks again.
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                return copy_by_hand(from, to, read_at, end);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let longest = usize::try_from(end - start).unwrap_or(BUFFER_BYTES);
    let mut buffer = vec![0; longest.min(BUFFER_BYTES)];
    let mut at = start;
    while at < end {
        let wanted = usize::try_from(end - at).map_or(BUFFER_BYTES, |rest| rest.min(BUFFER_BYTES));
        let Some(part) = buffer.get_mut(..wanted) else {
            break;
        };
        let read = read_full(from, part, at)?;
        to.write_all_at(part.get(..read).unwrap_or_default(), at)?;
        if read < wanted {
            break;
        }
        at += read as u64;
    }
    Ok(())
}

fn read_full(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns the offset at which data begins at or after `at`; `None` when only a hole follows.
fn data_from(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(error) => Err(error.into()),
    }
}

fn hole_from(file: &File, at: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Hole(at)) {
        Ok(end) => Ok(end),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NXIO) => Ok(u64::MAX),
        Err(error) => Err(error.into()),
    }
}
