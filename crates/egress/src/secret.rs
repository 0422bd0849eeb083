//! Secrets, what stands for them inside, and where either is written in what passes.
//!
//! A program gets a placeholder of the secret's own shape ([`placeholder()`]). What leaves
//! is searched for placeholders ([`Finder`]); in what comes back secrets are replaced by
//! their placeholders ([`Mask`]). Both find a value
//!
//! - as it is, in any case of its letters;
//! - within base64, at each of the three alignments, in the usual alphabet and in that
//!   for addresses, with and without padding, whatever stands before and after it, wrapped at
//!   any width;
//! - as hexadecimal digits of either, in either case or both, with spaces, `:`, `-`, `,`, `0x`
//!   and line breaks between those of each byte or without;
//! - each of these as UTF-16 or UTF-32 of either byte order;
//! - each of these also with any of its bytes escaped, one by one, as `%41`, `\u0041`,
//!   `\u{41}`, `\U00000041`, `\x41`, `\101`, `&#65;`, `&#x41;`, `=41`, by the names of HTML or
//!   the short escapes of JSON;
//! - across the borders of chunks, in heads, trailers, and within what is compressed by
//!   gzip, deflate, br or zstd as its `Content-Encoding` says.
//!
//! Not found is what somebody hides on purpose or passes through two of these in turn:
//! reversed, cut into parts, compressed within an archive, encrypted, base64 of base64, escaped
//! twice, with more than eight digits in a number. A line break within a
//! value is one in what is searched as well: each line of a value of several lines is
//! looked for by itself if it has [`BYTES_MIN`] bytes.
//!
//! What a mask does can be seen by whoever has something sent through it. So it must tell
//! nothing of the secret that its placeholder does not: a replacement has the length of
//! what it replaces, and what is held back until more has come depends on nothing but
//! which bytes could be part of any value at all, never on whether they are. That only a
//! whole value is replaced can be used to try a guess; with at least 64 bits to guess
//! ([`Unfit`]) that leads nowhere.
//!
//! Who pauses within a value must not have its beginning handed on. So the end of what has come
//! waits for the next byte: for a moment where only a few bytes in a row could be a part of a
//! value, or a line of no base64 ends ([`Mask::is_short`]); else until what follows, or
//! [`Stalled`].

mod bodies;
mod checksum;
mod coding;
mod finder;
mod gap;
mod held;
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
mod view;
mod walk;

pub use atoll_sys::memory::erase_stack;
pub use bodies::{Failed, MaskedBody, SearchedBody, Stalled};
pub(crate) use bodies::{HOLD, STALL_MAX, longer};
pub use coding::{Coding, Decoder, Undecodable, narrow};
pub use finder::{Finder, Found, Located, Placeholders};
pub(crate) use held::is_unlocked;
pub use held::{Secret, erase_what_is_given_back};
pub use login::{Known, LOGIN_BYTES_MAX, LoginUnfit, stand_for_token, stand_in};
pub use mask::{Mask, Masks, Noted};
pub(crate) use patterns::VALUES_MAX;
pub use placeholder::{Unfit, placeholder};
pub use settings::{
    SETTINGS_BYTES_MAX, Settings, SettingsForm, SettingsUnfit, mask as mask_settings,
};
pub use shape::{key as key_placeholders, text_of};
pub use symbols::Form;

/// The shortest secret, and the shortest line of one that is looked for by itself, bytes.
pub const BYTES_MIN: usize = 16;
/// The longest secret, bytes.
pub const BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests;
