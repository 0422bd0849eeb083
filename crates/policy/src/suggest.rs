/// The longest key to compare, characters; no known name is longer.
const WORD_CHARS_MAX: usize = 64;

/// Returns the known word that was probably meant: one that differs in few characters, or one that
/// starts as the written word does.
#[must_use]
pub fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let length = written.chars().count();
    if length > WORD_CHARS_MAX {
        return None;
    }
    let by_distance = misspelt(written, known.clone(), (length / 3).max(1));
    let written = written.to_ascii_lowercase();
    let by_start = || {
        known
            .into_iter()
            .map(|word| (common_start(&written, word), word))
            .filter(|(start, word)| *start >= 3 && start * 2 >= length.max(word.len()))
            .max_by_key(|(start, _)| *start)
    };
    by_distance.or_else(|| by_start().map(|(_, word)| word))
}

/// Returns the known word that differs from the written one in `most` characters at most.
#[must_use]
pub fn misspelt<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Option<&'a str> {
    if written.chars().count() > WORD_CHARS_MAX {
        return None;
    }
    let written = written.to_ascii_lowercase();
    let all = known
        .into_iter()
        .map(|word| match is_mixed_up(&written, word) {
            true => (1, word),
            false => (distance(&written, word), word),
        });
    let near = all.filter(|(distance, _)| *distance <= most);
    let nearest = near.min_by_key(|(distance, _)| *distance);
    nearest.map(|(_, word)| word)
}

/// Returns whether one word has the letters of the other in another order (`rsut`).
fn is_mixed_up(left: &str, right: &str) -> bool {
    let letters = |text: &str| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    left.len() > 2 && letters(left) == letters(right)
}

fn common_start(left: &str, right: &str) -> usize {
    let pairs = left.chars().zip(right.chars());
    pairs.take_while(|(left, right)| left == right).count()
}

/// Returns the number of characters to add, remove or replace (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().enumerate() {
        let mut last = index + 1;
        let mut next = vec![last];
        for (to, pair) in right.iter().zip(row.windows(2)) {
            let [diagonal, above] = pair else { continue };
            last = (diagonal + usize::from(from != *to))
                .min(above + 1)
                .min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
