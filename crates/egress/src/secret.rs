//! Secrets, their placeholders, and the search for either in the data that passes.
//!
//! A program gets a placeholder of the secret's own shape ([`placeholder()`]). Outgoing data is
//! searched for placeholders ([`Finder`]); in incoming data secrets are replaced by their
//! placeholders ([`Mask`]). Both find a value
//!
//! - as it is, in any case of its letters;
//! - within base64, at each of the three alignments, in the usual alphabet and in the URL-safe
//!   one, with and without padding, whatever precedes and follows it, wrapped at any width;
//! - as hexadecimal digits of either, in either case or both, with or without spaces, `:`, `-`,
//!   `,`, `0x` and line breaks between those of each byte;
//! - each of these as UTF-16 or UTF-32 of either byte order;
//! - each of these also with any of its bytes escaped, one by one, as `%41`, `\u0041`,
//!   `\u{41}`, `\U00000041`, `\x41`, `\101`, `&#65;`, `&#x41;`, `=41`, by the names of HTML or
//!   the short escapes of JSON;
//! - across the borders of chunks, in heads, trailers, and within what is compressed by
//!   gzip, deflate, br or zstd as its `Content-Encoding` says.
//!
//! A value is not found if somebody hides it on purpose, or passes it through two of these in
//! turn: reversed, cut into parts, compressed within an archive, encrypted, base64 of base64,
//! escaped twice, with more than eight digits in a number. A line break within a value matches
//! only a line break: each line of a value of several lines is searched for by itself if it has
//! [`BYTES_MIN`] bytes.
//!
//! The effects of a mask are visible to whoever sends something through it. So they must reveal
//! nothing of the secret that its placeholder does not: a replacement has the length of what it
//! replaces, and the bytes held back until more has come depend only on which bytes could be part
//! of any value at all, never on whether they are. A guess can be checked, since only a whole
//! value is replaced; with at least 64 bits to guess ([`PlaceholderError`]) that leads nowhere.
//!
//! A pause within a value must not have its beginning handed on. So the end of what has come
//! waits for the next byte: for a moment if only a few bytes in a row could be a part of a value,
//! or a line that is too short for base64 ends ([`Mask::is_short`]); otherwise until the next
//! byte, or [`Stalled`].

mod bodies;
mod checksum;
mod coding;
mod finder;
mod gap;
mod login;
mod mask;
mod patterns;
mod placeholder;
mod row;
mod settings;
mod shape;
mod symbols;
mod table;
mod units;
mod value;
mod view;
mod walk;

pub use atoll_sys::memory::erase_stack;
pub(crate) use bodies::{HOLD, STALL_MAX, longer};
pub use bodies::{MaskedBody, SearchedBody, Stalled, StreamError};
pub use coding::{Coding, Decoder, Undecodable, narrow};
pub use finder::{Finder, Found, Located, Placeholders};
pub use login::{LOGIN_BYTES_MAX, LoginMaskError, StandInLookup, stand_for_token, stand_in};
pub use mask::{Mask, MaskedNumbers, Masks};
pub(crate) use patterns::VALUES_MAX;
pub use placeholder::{PlaceholderError, make_placeholder, placeholder};
pub use settings::{
    FieldRules, SETTINGS_BYTES_MAX, Settings, SettingsForm, SettingsMaskError,
    mask as mask_settings,
};
pub use shape::{key as key_placeholders, text_of};
pub use symbols::Form;
pub(crate) use value::is_unlocked;
pub use value::{Secret, erase_freed_memory};

/// The shortest secret, and the shortest line of one that is searched for by itself, bytes.
pub const BYTES_MIN: usize = 16;
/// The longest secret, bytes.
pub const BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests;
