//! What a hostile program writes to a terminal. The first byte chooses the
//! rights, the second how the rest is cut into pieces.

#![no_main]

use std::collections::BTreeMap;

use atoll_cli::escape::EscapeFilter;
use atoll_model::TerminalRights;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cli/src/escape/inspection.rs"]
mod inspection;

fuzz_target!(|bytes: &[u8]| {
    let [choice, cut, output @ ..] = bytes else {
        return;
    };
    let rights = TerminalRights {
        queries: choice & 1 != 0,
        clipboard: choice & 2 != 0,
        title: choice & 4 != 0,
    };
    let (shown, removed, restored) = filter([output], rights);
    assert_eq!(inspection::inspect(&shown, rights), Ok(()));
    // Filtering what was filtered changes nothing.
    let (again, _, _) = filter([shown.as_slice()], rights);
    assert_eq!(again, shown);
    // What is written to restore the terminal is on the list too.
    let whole = [shown.as_slice(), &restored].concat();
    assert_eq!(inspection::inspect(&whole, rights), Ok(()));
    // However the output is cut, the same comes out.
    let piece = usize::from(*cut) % 7 + 1;
    let same = (shown, removed, restored);
    assert_eq!(filter(output.chunks(piece), rights), same);
    let (start, end) = output.split_at(usize::from(*cut).min(output.len()));
    assert_eq!(filter([start, &[], end], rights), same);
});

/// What is shown, what was removed, and what restores the terminal.
fn filter<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    rights: TerminalRights,
) -> (Vec<u8>, BTreeMap<&'static str, u64>, Vec<u8>) {
    let mut filter = EscapeFilter::new(rights);
    let (mut shown, mut restored) = (Vec::new(), Vec::new());
    for piece in pieces {
        filter.push(piece, &mut shown);
    }
    filter.finish(&mut shown);
    filter.restore(&mut restored);
    (shown, filter.removed().clone(), restored)
}
