//! Shortening of texts to what a message holds.

use std::borrow::Cow;

use atoll_model::network::{FLOW_MESSAGE_BYTES_MAX, Flow};

use super::{LOGIN_BYTES_MAX, TEXT_BYTES_MAX};
use crate::refusals::shown;

/// Shortens the texts of a flow so that they fit into a message, its path to this many bytes.
pub(super) fn cut_flow(flow: &mut Flow, path_bytes_max: usize) {
    cut(&mut flow.host, TEXT_BYTES_MAX);
    if let Some(rule) = &mut flow.rule {
        cut(rule, TEXT_BYTES_MAX);
    }
    if let Some(login) = &mut flow.login {
        cut(&mut login.user, LOGIN_BYTES_MAX);
        cut(&mut login.database, LOGIN_BYTES_MAX);
    }
    if let Some(request) = &mut flow.request {
        cut(&mut request.method, TEXT_BYTES_MAX);
        cut(&mut request.path, path_bytes_max);
    }
}

pub(super) fn cut(text: &mut String, bytes_max: usize) {
    let shorter = match shown(text, bytes_max) {
        Cow::Borrowed(_) => return,
        Cow::Owned(shorter) => shorter,
    };
    *text = shorter;
}

/// Splits off as many whole lines as one message holds. Returns them, and the rest.
pub(super) fn first_message(text: &[u8]) -> (&[u8], &[u8]) {
    let Some(window) = text.get(..FLOW_MESSAGE_BYTES_MAX) else {
        return (text, &[]);
    };
    // No line is longer.
    let end = window.iter().rposition(|byte| *byte == b'\n');
    text.split_at(end.map_or(window.len(), |end| end + 1))
}
