//! Range requests (RFC 9110, 14) in a run with credentials: a range is requested with a margin on
//! both sides, searched with it, and handed on without it. So a real value that the range cuts is
//! masked just as it is in the whole.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::Method;
use hyper::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RANGE,
};

use super::body::BodyError;

/// Headers with a digest of exactly what is sent, besides those of S3.
const DIGESTS: [HeaderName; 3] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
];
/// The prefix of S3's digest headers.
const S3_DIGEST: &str = "x-amz-checksum-";

/// The range that a program requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestedRange {
    /// From this byte on, up to that one if given.
    From(u64, Option<u64>),
    /// The last bytes, this many.
    Last(u64),
}

/// A requested range with its margin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaddedRange {
    wanted: RequestedRange,
    /// The margin on each side, bytes.
    margin: u64,
}

/// The part of a response that is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveredPart {
    /// The number of bytes before it.
    skip: u64,
    /// Its length, bytes; 0 if the program has requested a range after the end.
    pub(crate) take: u64,
    /// The number of bytes received.
    came: u64,
    first: u64,
    /// The length of the whole, if known.
    all: Option<u64>,
}

impl PaddedRange {
    /// Reads the range of a request, with this margin; `None` unless it is a single range of bytes.
    pub(crate) fn read(method: &Method, headers: &HeaderMap, margin: u64) -> Option<Self> {
        let mut all = headers.get_all(RANGE).iter();
        let (Some(one), None) = (all.next(), all.next()) else {
            return None;
        };
        let (unit, range) = one.to_str().ok()?.split_once('=')?;
        if *method != Method::GET || !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        let wanted = match (first, last) {
            ("", last) => RequestedRange::Last(number(last).filter(|bytes| *bytes > 0)?),
            (first, "") => RequestedRange::From(number(first)?, None),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                RequestedRange::From(first, Some(last).filter(|last| *last >= first)?.into())
            }
        };
        Some(Self { wanted, margin })
    }

    /// Returns the margin on each side, bytes.
    pub(crate) fn margin(&self) -> u64 {
        self.margin
    }

    /// Returns the `Range` header that is sent to the server.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let margin = self.margin;
        let text = match self.wanted {
            RequestedRange::From(first, last) => {
                let last = last.map(|last| last.saturating_add(margin).to_string());
                let first = first.saturating_sub(margin);
                format!("bytes={first}-{}", last.unwrap_or_default())
            }
            RequestedRange::Last(bytes) => format!("bytes=-{}", bytes.saturating_add(margin)),
        };
        HeaderValue::try_from(text).ok()
    }

    /// Checks that a response without partial status is the whole: if a range began or ended within
    /// a real value, the rest of that could not be recognized.
    ///
    /// # Errors
    /// The reason why it is not taken for the whole, in words.
    pub(crate) fn is_all(&self, is_success: bool, headers: &HeaderMap) -> Result<(), String> {
        let mut ranges = headers.get_all(CONTENT_RANGE).iter();
        let is_unsatisfied = |range: &HeaderValue| range.as_bytes().starts_with(b"bytes */");
        if ranges.any(|range| is_success || !is_unsatisfied(range)) {
            return Err("it is a part and does not say so by its status".to_owned());
        }
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|one| one.to_str().ok());
        let length = length.and_then(number);
        let is_all = match self.wanted {
            RequestedRange::From(first, None) => first <= self.margin,
            RequestedRange::From(first, Some(last)) => {
                let asked = last.saturating_add(self.margin).saturating_add(1);
                first <= self.margin && length.is_some_and(|length| length != asked)
            }
            RequestedRange::Last(_) => false,
        };
        match is_all || !is_success {
            true => Ok(()),
            false => {
                Err("a part was asked for, and this is not said to be one: ask for all".to_owned())
            }
        }
    }

    /// Returns the part of a response with these headers that is handed on (RFC 9110, 14.4).
    ///
    /// # Errors
    /// The reason why nothing is, in words.
    pub(crate) fn cut(&self, headers: &HeaderMap) -> Result<DeliveredPart, String> {
        let another = || "it is another part than was asked for".to_owned();
        let is_of_several = |kind: &HeaderValue| {
            let kind = kind.as_bytes().to_ascii_lowercase();
            kind.starts_with(b"multipart/")
        };
        if headers.get_all(CONTENT_TYPE).iter().any(is_of_several) {
            return Err("it is several parts, and one was asked for".to_owned());
        }
        let mut ranges = headers.get_all(CONTENT_RANGE).iter();
        let (one, further) = (ranges.next(), ranges.next());
        let one = one
            .and_then(|one| one.to_str().ok())
            .filter(|_| further.is_none());
        let (begin, end, all) = one.and_then(part).ok_or_else(another)?;
        let at_end = all.map(|all| all - 1);
        let (asked, asked_to, first, last) = match (self.wanted, all) {
            (RequestedRange::From(first, last), _) => {
                let asked_to = last.map(|last| last.saturating_add(self.margin));
                (first.saturating_sub(self.margin), asked_to, first, last)
            }
            (RequestedRange::Last(bytes), Some(all)) => {
                let asked = all.saturating_sub(bytes.saturating_add(self.margin));
                (asked, None, all.saturating_sub(bytes), None)
            }
            (RequestedRange::Last(_), None) => return Err(another()),
        };
        // It ends as was asked, or with the end of all: else nobody knows what goes on there.
        let is_to_end = at_end == Some(end);
        let is_asked = asked_to.is_some_and(|asked| asked == end);
        if begin != asked || !is_to_end && !is_asked {
            return Err(another());
        }
        let last = last.map_or(end, |last| last.min(end));
        let came = end - begin + 1;
        let is_as_long = |length: &HeaderValue| length.to_str().ok().and_then(number) == Some(came);
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter().peekable();
        if lengths.peek().is_none() {
            // That it is another one would be known once its beginning is handed on.
            return Err("it is a part that does not say how long it is: ask for all".to_owned());
        }
        if !lengths.all(is_as_long) {
            return Err(another());
        }
        Ok(DeliveredPart {
            skip: first - begin,
            take: (last + 1).saturating_sub(first),
            came,
            first,
            all,
        })
    }
}

/// Parses a number of a range.
fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Parses a response's range: its first and last byte, and the length of the whole.
fn part(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (unit, rest) = text.split_once(' ')?;
    let (range, all) = rest.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let all = match all {
        "*" => None,
        all => Some(number(all)?),
    };
    // What is longer than can be counted is nothing.
    let is_within = first <= last && last < u64::MAX && all.is_none_or(|all| last < all);
    (unit.eq_ignore_ascii_case("bytes") && is_within).then_some((first, last, all))
}

impl DeliveredPart {
    /// Updates a response's head to match the part that is handed on.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let all = self
            .all
            .map_or_else(|| "*".to_owned(), |all| all.to_string());
        let range = match self.take {
            0 => format!("bytes */{all}"),
            bytes => format!("bytes {}-{}/{all}", self.first, self.first + bytes - 1),
        };
        if let Ok(range) = HeaderValue::try_from(range) {
            headers.insert(CONTENT_RANGE, range);
        }
        headers.remove(CONTENT_LENGTH);
        if self.take > 0 {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(self.take));
        }
        if self.take < self.came {
            let of_s3 = headers
                .keys()
                .filter(|name| name.as_str().starts_with(S3_DIGEST));
            let of_s3: Vec<HeaderName> = of_s3.cloned().collect();
            for name in of_s3.iter().chain(&DIGESTS) {
                headers.remove(name);
            }
        }
    }
}

/// A body cut down to the part that is handed on. It ends once all that was announced has come,
/// which must have the announced length.
#[derive(Debug)]
pub(crate) struct WindowedBody<Inner> {
    inner: Inner,
    /// The number of bytes still to come.
    left: u64,
    skip: u64,
    take: u64,
    last: Option<Bytes>,
    is_over: bool,
}

impl<Inner> WindowedBody<Inner> {
    pub(crate) fn new(inner: Inner, cut: &DeliveredPart) -> Self {
        Self {
            inner,
            left: cut.came,
            skip: cut.skip,
            take: cut.take,
            last: None,
            is_over: false,
        }
    }

    /// Returns the part of a chunk that is handed on.
    fn cut(&mut self, mut data: Bytes) -> Bytes {
        let length = |data: &Bytes| data.len() as u64;
        let at = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let skip = self.skip.min(length(&data));
        self.skip -= skip;
        data = data.split_off(at(skip));
        data.truncate(at(self.take));
        self.take -= length(&data);
        data
    }
}

impl<Inner> Body for WindowedBody<Inner>
where
    Inner: Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        while !this.is_over {
            match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // Of what comes after the end nothing is of the part.
                Some(Ok(frame)) => {
                    let came = frame.data_ref().map_or(0, |data| data.len() as u64);
                    let Some(left) = this.left.checked_sub(came) else {
                        return Poll::Ready(Some(Err(BodyError::Short)));
                    };
                    this.left = left;
                    let data = frame.into_data().map(|data| this.cut(data));
                    this.is_over = data.is_err() || this.inner.is_end_stream();
                    match data {
                        Ok(data) if this.take > 0 && !data.is_empty() => {
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                        Ok(data) if !data.is_empty() => this.last = Some(data),
                        Ok(_) | Err(_) => {}
                    }
                }
                None => this.is_over = true,
            }
        }
        if this.take > 0 || this.left > 0 {
            return Poll::Ready(Some(Err(BodyError::Short)));
        }
        Poll::Ready(this.last.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over && self.last.is_none() && self.take == 0
    }

    fn size_hint(&self) -> SizeHint {
        let last = self.last.as_ref().map_or(0, |data| data.len() as u64);
        SizeHint::with_exact(self.take + last)
    }
}

#[cfg(test)]
mod tests;
