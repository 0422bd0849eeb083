//! The output of a program: the last of it is kept, and whoever reads gets it in order.
//!
//! Without a reader the oldest is dropped and counted. One reader holds the program up while it is
//! slow. Of several the slowest is cut off, so that none holds up the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::line::Stream;
use crate::protocol::End;

/// The most output that is kept, bytes.
pub(super) const WINDOW_BYTES: u64 = 256 * 1024;
/// Pieces of output up to this are joined, bytes.
const JOINED_BYTES: usize = 1024;
/// The cost of a piece besides its content, bytes.
const CHUNK_BYTES: u64 = 100;

/// The output of one program.
#[derive(Debug, Default)]
pub(crate) struct Window {
    state: Mutex<State>,
    /// Told when there is more, or the end.
    grew: Notify,
    /// Told when a reader has gone on, or away.
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Chunk>,
    /// All that was ever written, bytes.
    end: u64,
    /// All that the pieces of it took, bytes.
    taken: u64,
    readers: BTreeMap<u64, Place>,
    last_reader: u64,
    over: Option<End>,
}

#[derive(Clone, Debug)]
struct Chunk {
    stream: Stream,
    /// The offset of its first byte in all output.
    at: u64,
    /// The cost of the pieces before it, bytes.
    before: u64,
    content: Bytes,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.at + self.content.len() as u64
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    is_cut: bool,
}

/// A place in the output, from which on it is read.
#[derive(Debug)]
pub(crate) struct Reading {
    window: Arc<Window>,
    reader: u64,
    /// The output that was lost before its first byte, bytes.
    pub(crate) lost: u64,
    /// The offset of its first byte in all output, bytes.
    pub(crate) at: u64,
}

/// The next of the output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Content.
    Content(Stream, Bytes),
    /// The program has ended, or this reader was cut off.
    End(End),
}

impl Window {
    /// Begins to read: from an offset on, or only what is new.
    pub(crate) fn read(self: &Arc<Self>, from: Option<u64>) -> Reading {
        let mut state = self.state();
        let oldest = state.chunks.front().map_or(state.end, |chunk| chunk.at);
        let wanted = from.map_or(state.end, |from| from.min(state.end));
        let at = wanted.max(oldest);
        state.last_reader += 1;
        let reader = state.last_reader;
        state.readers.insert(reader, Place { at, is_cut: false });
        Reading {
            window: Arc::clone(self),
            reader,
            lost: at - wanted,
            at,
        }
    }

    /// Waits until there is room for more.
    pub(crate) async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            if self.state().make_room() {
                return;
            }
            drained.await;
        }
    }

    /// Appends what was written.
    pub(crate) fn push(&self, stream: Stream, content: Bytes) {
        let mut state = self.state();
        let (at, before) = (state.end, state.taken);
        state.end += content.len() as u64;
        state.taken += content.len() as u64;
        // Of a program that writes a byte at a time no chunk is kept for each.
        let fits = |chunk: &&mut Chunk| {
            chunk.stream == stream && chunk.content.len() + content.len() <= JOINED_BYTES
        };
        match state.chunks.back_mut().filter(fits) {
            Some(last) => last.content = [&*last.content, &content].concat().into(),
            None => {
                state.taken += CHUNK_BYTES;
                state.chunks.push_back(Chunk {
                    stream,
                    at,
                    before,
                    content,
                });
            }
        }
        state.forget();
        drop(state);
        self.grew.notify_waiters();
    }

    /// Returns what is taken by what is kept, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let state = self.state();
        usize::try_from(lag(&state.chunks, state.taken, 0)).unwrap_or(usize::MAX)
    }

    /// Takes note of the end; the first one counts.
    pub(crate) fn close(&self, end: End) {
        self.state().over.get_or_insert(end);
        self.grew.notify_waiters();
        self.drained.notify_waiters();
    }

    /// Returns the end, once there is one.
    pub(crate) fn over(&self) -> Option<End> {
        self.state().over.clone()
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) {
        loop {
            let grew = self.grew.notified();
            tokio::pin!(grew);
            grew.as_mut().enable();
            if self.over().is_some() {
                return;
            }
            grew.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether more can be taken now; cuts off the slowest of several readers if not.
    fn make_room(&mut self) -> bool {
        let reading = self.readers.values_mut().filter(|place| !place.is_cut);
        let mut reading: Vec<&mut Place> = reading.collect();
        let Some(slowest) = reading.iter().map(|place| place.at).min() else {
            return true;
        };
        if lag(&self.chunks, self.taken, slowest) < WINDOW_BYTES || self.over.is_some() {
            return true;
        }
        if reading.len() == 1 {
            return false;
        }
        // Of those that are all as slow, the one that came last reads on, and is waited for.
        let are_alike = reading.iter().all(|place| place.at == slowest);
        let last = reading.len() - 1;
        for (at, place) in reading.iter_mut().enumerate() {
            let is_kept = are_alike && at == last;
            place.is_cut |= place.at == slowest && !is_kept;
        }
        !are_alike
    }

    /// Drops what is beyond the window, and nobody reads any more.
    fn forget(&mut self) {
        let reading = self.readers.values().filter(|place| !place.is_cut);
        let read = reading.map(|place| place.at).min().unwrap_or(self.end);
        while let [Some(first), Some(second)] = [self.chunks.front(), self.chunks.get(1)] {
            if first.end() > read || self.taken - second.before < WINDOW_BYTES {
                break;
            }
            self.chunks.pop_front();
        }
    }
}

/// Returns what is taken by what follows a place, bytes.
fn lag(chunks: &VecDeque<Chunk>, taken: u64, at: u64) -> u64 {
    let first = chunks.partition_point(|chunk| chunk.end() <= at);
    chunks.get(first).map_or(0, |chunk| taken - chunk.before)
}

impl Reading {
    /// Returns whether nobody else reads.
    pub(crate) fn is_alone(&self) -> bool {
        let state = self.window.state();
        state.readers.len() == 1 && state.over.is_none()
    }

    /// Waits for the next of the output.
    pub(crate) async fn next(&mut self) -> Next {
        loop {
            let grew = self.window.grew.notified();
            tokio::pin!(grew);
            // Before the look, so that nothing comes between.
            grew.as_mut().enable();
            if let Some(next) = self.take() {
                return next;
            }
            grew.await;
        }
    }

    fn take(&self) -> Option<Next> {
        let mut state = self.window.state();
        let place = *state.readers.get(&self.reader)?;
        if place.is_cut {
            return Some(Next::End(End::TooSlow));
        }
        let at = state
            .chunks
            .partition_point(|chunk| chunk.end() <= place.at);
        let Some(chunk) = state.chunks.get(at) else {
            return state.over.clone().map(Next::End);
        };
        let skipped = usize::try_from(place.at.saturating_sub(chunk.at)).unwrap_or(0);
        let content = chunk.content.slice(skipped.min(chunk.content.len())..);
        let next = Next::Content(chunk.stream, content);
        let read_to = chunk.end();
        if let Some(place) = state.readers.get_mut(&self.reader) {
            place.at = read_to;
        }
        state.forget();
        drop(state);
        self.window.drained.notify_waiters();
        Some(next)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.window.state();
        state.readers.remove(&self.reader);
        state.forget();
        drop(state);
        self.window.drained.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const BLOCK: usize = 64 * 1024;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    }

    fn block(letter: u8) -> Vec<u8> {
        vec![letter; BLOCK]
    }

    /// Returns whether there is no room now, nor soon.
    async fn is_full(window: &Window) -> bool {
        timeout(Duration::from_millis(20), window.room())
            .await
            .is_err()
    }

    async fn letters(reading: &mut Reading, count: usize) -> String {
        let mut all = String::new();
        for _ in 0..count {
            match reading.next().await {
                Next::Content(_, content) => all.push(char::from(content[0])),
                Next::End(_) => all.push('.'),
            }
        }
        all
    }

    #[test]
    fn without_a_reader_the_oldest_is_dropped_and_counted() {
        runtime().block_on(async {
            let window = Arc::new(Window::default());
            for letter in b'a'..=b'j' {
                window.room().await;
                window.push(Stream::Output, block(letter).into());
            }
            window.close(End::Exited(0));
            let mut late = window.read(Some(0));
            assert_eq!(late.lost, 6 * BLOCK as u64);
            assert_eq!(letters(&mut late, 5).await, "ghij.");
            // Only what is new, of which there is nothing.
            assert_eq!(letters(&mut window.read(None), 1).await, ".");
            // In the middle of a block.
            let mut part = window.read(Some(10 * BLOCK as u64 - 5));
            assert_eq!(
                part.next().await,
                Next::Content(Stream::Output, Bytes::from_static(b"jjjjj"))
            );
        });
    }

    #[test]
    fn one_reader_holds_the_program_up() {
        runtime().block_on(async {
            let window = Arc::new(Window::default());
            let mut slow = window.read(Some(0));
            for letter in b'a'..=b'd' {
                window.room().await;
                window.push(Stream::Output, block(letter).into());
            }
            assert!(is_full(&window).await);
            assert_eq!(letters(&mut slow, 1).await, "a");
            assert!(!is_full(&window).await);
            window.push(Stream::Output, block(b'e').into());
            assert!(is_full(&window).await);
            assert_eq!(letters(&mut slow, 4).await, "bcde");
            // One that goes away makes room.
            for letter in b'f'..=b'i' {
                window.push(Stream::Output, block(letter).into());
            }
            assert!(is_full(&window).await);
            drop(slow);
            assert!(!is_full(&window).await);
        });
    }

    #[test]
    fn small_pieces_count_for_what_they_take() {
        runtime().block_on(async {
            let window = Arc::new(Window::default());
            let write = |count: u64| {
                for _ in 0..count {
                    window.push(Stream::Output, Bytes::from_static(b"o"));
                    window.push(Stream::Error, Bytes::from_static(b"e"));
                }
            };
            write(WINDOW_BYTES);
            assert!(window.state().chunks.len() as u64 <= WINDOW_BYTES / CHUNK_BYTES + 1);
            let held = window.read(None);
            write(WINDOW_BYTES / CHUNK_BYTES / 2);
            assert!(is_full(&window).await);
            drop(held);
            assert!(!is_full(&window).await);
        });
    }

    #[test]
    fn of_readers_that_are_alike_the_last_reads_on() {
        runtime().block_on(async {
            let window = Arc::new(Window::default());
            let held = window.read(Some(0));
            for letter in b'a'..=b'd' {
                window.room().await;
                window.push(Stream::Output, block(letter).into());
            }
            let mut last = window.read(Some(0));
            assert!(is_full(&window).await);
            assert_eq!(letters(&mut last, 4).await, "abcd");
            assert!(!is_full(&window).await);
            drop(held);
        });
    }

    #[test]
    fn of_several_readers_the_slowest_is_cut_off_and_told() {
        runtime().block_on(async {
            let window = Arc::new(Window::default());
            let (mut slow, mut fast) = (window.read(Some(0)), window.read(Some(0)));
            for letter in b'a'..=b'z' {
                window.room().await;
                window.push(Stream::Output, block(letter).into());
                assert_eq!(letters(&mut fast, 1).await, char::from(letter).to_string());
            }
            assert_eq!(slow.next().await, Next::End(End::TooSlow));
            window.close(End::Exited(0));
            assert_eq!(fast.next().await, Next::End(End::Exited(0)));
        });
    }
}
