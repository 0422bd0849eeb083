//! File attributes and inotify watches: only on files that the program may write, or read.

use std::os::fd::OwnedFd;

use atoll_sys::judging::Answer;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, inotify,
    removexattr, setxattr, utimensat,
};

use crate::caller::{Caller, HERE, is_beneath, name_of, whereabouts};
use crate::{Attribute, EACCES, EPERM, Places, Refused, Target};

const EINVAL: i32 = 22;
/// S_ISUID and S_ISGID. A file that runs with its owner's rights would be a way in for other
/// users of the host.
const SET_ID: u32 = 0o6000;
const IN_DONT_FOLLOW: u32 = 0x0200_0000;
/// The longest value of an extended attribute, bytes (XATTR_SIZE_MAX).
const VALUE_BYTES_MAX: u64 = 65_536;
const E2BIG: i32 = 7;
const MODE_BITS: u32 = 0o7777;
const UTIME_NOW: i64 = 0x3fff_ffff;

/// Changes one attribute of one file.
pub(crate) fn change(
    caller: &Caller,
    target: Target,
    attribute: Attribute,
    arguments: &[u64; 6],
    places: &Places,
    waits: impl Fn() -> Result<(), Refused>,
) -> Result<Answer, Refused> {
    let (place, rest) = find(caller, target, arguments)?;
    let change = read(caller, attribute, &rest)?;
    waits()?;
    if !is_beneath(&whereabouts(&place)?, &places.writable) {
        return Err(Refused(EPERM));
    }
    make(&place, change)?;
    Ok(Answer::Value(0))
}

/// Adds an inotify watch on a file that may be read.
pub(crate) fn watch(
    caller: &Caller,
    arguments: &[u64; 6],
    places: &Places,
    waits: impl Fn() -> Result<(), Refused>,
) -> Result<Answer, Refused> {
    let [descriptor, path, events, ..] = *arguments;
    let follow = events as u32 & IN_DONT_FOLLOW == 0;
    let place = caller.place(HERE, &caller.text(path)?, follow)?;
    let events_of = caller.descriptor(descriptor)?;
    waits()?;
    let path = whereabouts(&place)?;
    if !is_beneath(&path, &places.readable) && !is_beneath(&path, &places.writable) {
        return Err(Refused(EACCES));
    }
    // The name leads to the place itself, so it has to be followed.
    let wanted = inotify::WatchFlags::from_bits_retain(events as u32 & !IN_DONT_FOLLOW);
    let number = inotify::add_watch(events_of, name_of(&place), wanted)?;
    Ok(Answer::Value(number.into()))
}

/// Opens the file that a call is about; returns it with the arguments after its name.
fn find(
    caller: &Caller,
    target: Target,
    arguments: &[u64; 6],
) -> Result<(OwnedFd, Vec<u64>), Refused> {
    const SYMLINK_NOFOLLOW: u64 = 0x100;
    const EMPTY_PATH: u64 = 0x1000;
    let [first, second, ..] = *arguments;
    let after = |count: usize| arguments.get(count..).unwrap_or_default().to_vec();
    match target {
        Target::Descriptor => Ok((caller.behind(first as i32)?, after(1))),
        Target::Path | Target::Link => {
            let path = caller.text(first)?;
            let place = caller.place(HERE, &path, target == Target::Path)?;
            Ok((place, after(1)))
        }
        Target::At(flags) => {
            let flags = flags
                .and_then(|position| arguments.get(usize::from(position)))
                .map_or(0, |flags| flags & 0xffff_ffff);
            if flags & !(SYMLINK_NOFOLLOW | EMPTY_PATH) != 0 {
                return Err(Refused(EINVAL));
            }
            // Without a path the descriptor itself is meant.
            let path = match second {
                0 => Vec::new(),
                address => caller.text(address)?,
            };
            let by_descriptor = second == 0 || (path.is_empty() && flags & EMPTY_PATH != 0);
            let place = if by_descriptor {
                caller.behind(first as i32)?
            } else {
                caller.place(first as i32, &path, flags & SYMLINK_NOFOLLOW == 0)?
            };
            Ok((place, after(2)))
        }
    }
}

/// An attribute change, copied from the caller's memory.
enum Change {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
    Set(Vec<u8>, Vec<u8>, u32),
    Remove(Vec<u8>),
}

fn read(caller: &Caller, attribute: Attribute, rest: &[u64]) -> Result<Change, Refused> {
    let argument = |index: usize| rest.get(index).copied().unwrap_or_default();
    let [first, second, third, fourth] = [0, 1, 2, 3].map(argument);
    Ok(match attribute {
        Attribute::Mode if first as u32 & SET_ID != 0 => return Err(Refused(EPERM)),
        Attribute::Mode => Change::Mode(first as u32 & MODE_BITS),
        Attribute::Owner => Change::Owner(first as u32, second as u32),
        Attribute::Seconds => Change::Times(times(caller, first, 1, 0)?),
        Attribute::Microseconds => Change::Times(times(caller, first, 2, 1_000)?),
        Attribute::Nanoseconds => Change::Times(times(caller, first, 2, 1)?),
        Attribute::Set if third > VALUE_BYTES_MAX => return Err(Refused(E2BIG)),
        Attribute::Set => Change::Set(
            caller.text(first)?,
            match third {
                0 => Vec::new(),
                count => caller.bytes(second, count as usize)?,
            },
            fourth as u32,
        ),
        Attribute::Remove => Change::Remove(caller.text(first)?),
    })
}

/// Reads two times at an address, of `words` 8-byte words each: seconds, and with two words a
/// fraction in units of `unit` nanoseconds. Address 0 means now.
fn times(caller: &Caller, address: u64, words: usize, unit: i64) -> Result<Timestamps, Refused> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    if address == 0 {
        return Ok(Timestamps {
            last_access: now,
            last_modification: now,
        });
    }
    let bytes = caller.bytes(address, 2 * words * 8)?;
    let numbers: Vec<i64> = bytes
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok().map(i64::from_ne_bytes))
        .collect();
    let time = |index: usize| -> Result<Timespec, Refused> {
        let number = |at: usize| numbers.get(at).copied().unwrap_or_default();
        let fraction = match words {
            2 => number(index * words + 1),
            _ => 0,
        };
        // Microseconds have no special values; those of nanoseconds pass as they are.
        if unit == 1_000 && !(0..1_000_000).contains(&fraction) {
            return Err(Refused(EINVAL));
        }
        Ok(Timespec {
            tv_sec: number(index * words),
            tv_nsec: fraction * unit,
        })
    };
    Ok(Timestamps {
        last_access: time(0)?,
        last_modification: time(1)?,
    })
}

fn make(place: &OwnedFd, change: Change) -> Result<(), Refused> {
    let name = name_of(place);
    match change {
        Change::Mode(mode) => {
            // Its name would lead on, were it a symbolic link; a link has no mode.
            refuse_link(place)?;
            chmodat(CWD, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        Change::Owner(user, group) => {
            let user = (user != u32::MAX).then(|| Uid::from_raw(user));
            let group = (group != u32::MAX).then(|| Gid::from_raw(group));
            chownat(place, "", user, group, AtFlags::EMPTY_PATH)?;
        }
        Change::Times(times) => utimensat(place, "", &times, AtFlags::EMPTY_PATH)?,
        Change::Set(attribute, value, flags) => {
            refuse_link(place)?;
            let flags = XattrFlags::from_bits(flags).ok_or(Refused(EINVAL))?;
            setxattr(name, attribute, &value, flags)?;
        }
        Change::Remove(attribute) => {
            refuse_link(place)?;
            removexattr(name, attribute)?;
        }
    }
    Ok(())
}

/// Refuses a symbolic link: calls on the file's name must not follow one.
fn refuse_link(place: &OwnedFd) -> Result<(), Refused> {
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode);
    match kind {
        rustix::fs::FileType::Symlink => Err(Refused(rustix::io::Errno::OPNOTSUPP.raw_os_error())),
        _ => Ok(()),
    }
}
