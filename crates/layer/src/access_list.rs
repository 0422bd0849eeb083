//! POSIX access control lists. Where an entry has one, the group's bits of its mode
//! are the list's mask: what named users and groups get at most. Without the list
//! these bits would be the group's own rights, so they are never carried over as
//! they are.

use std::io;

use rustix::io::Errno;

use crate::path::Bytes;

pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";

/// The list's format in the extended attribute: a version, then entries of a tag, of rights and of
/// an id.
const VERSION: [u8; 4] = 2_u32.to_le_bytes();
const ENTRY_BYTES: usize = 8;
const TAG_GROUP: u16 = 0x04;
const TAG_MASK: u16 = 0x10;

/// Returns the access ACL among an entry's lists.
pub(crate) fn access(lists: &[(Bytes, Bytes)]) -> Option<&Bytes> {
    let found = lists.iter().find(|(name, _)| name.0 == ACCESS);
    found.map(|(_, value)| value)
}

/// Returns the mode that gives nobody more than the entry does once its list is gone: the group
/// keeps what the list leaves to it, and nothing where the list cannot be parsed.
pub(crate) fn mode_without(list: &Bytes, mode: u32) -> u32 {
    let group = group_rights(&list.0).unwrap_or(0) & mode >> 3 & 0o7;
    mode & !0o070 | group << 3
}

fn group_rights(list: &[u8]) -> Option<u32> {
    let entries = list.strip_prefix(&VERSION)?;
    if entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let (mut group, mut mask) = (None, 0o7);
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let [tag, tag_high, rights, rights_high, ..] = *entry else {
            return None;
        };
        let rights = u32::from(u16::from_le_bytes([rights, rights_high]));
        match u16::from_le_bytes([tag, tag_high]) {
            TAG_GROUP => group = Some(rights),
            TAG_MASK => mask = rights,
            _ => {}
        }
    }
    Some(group? & mask & 0o7)
}

/// Returns whether an entry, just made or about to be changed, has an access control list.
pub(crate) fn is_listed(path: &str) -> io::Result<bool> {
    match rustix::fs::getxattr_query(path, ACCESS) {
        Ok(bytes) => Ok(bytes > 0),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
