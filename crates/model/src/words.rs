use std::fmt;

/// The most bytes of one argument or variable that the kernel passes to a program, without the zero
/// at its end: `MAX_ARG_STRLEN` where pages have 4 KiB (execve(2)).
pub const WORD_BYTES_MAX: usize = 128 * 1024 - 1;

/// An argument or variable that no program can be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordTooLong {
    /// The argument by its number, or the variable by its name.
    pub which: String,
    /// Its size.
    pub bytes: usize,
}

impl fmt::Display for WordTooLong {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { which, bytes } = self;
        write!(
            to,
            "{which} has {bytes} bytes; Linux gives a program at most {WORD_BYTES_MAX} in one \
             argument or variable"
        )
    }
}

impl std::error::Error for WordTooLong {}

/// Checks the words of a program: its name and arguments, and its variables as `NAME=VALUE`.
///
/// # Errors
/// [`WordTooLong`] for the first that the kernel would refuse.
pub fn check_words<'a>(
    command: impl IntoIterator<Item = &'a [u8]>,
    environment: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), WordTooLong> {
    let is_long = |word: &[u8]| word.len() > WORD_BYTES_MAX;
    let mut command = command.into_iter().enumerate();
    if let Some((number, word)) = command.find(|(_, word)| is_long(word)) {
        let which = match number {
            0 => "the program's name".to_owned(),
            number => format!("argument {number}"),
        };
        let bytes = word.len();
        return Err(WordTooLong { which, bytes });
    }
    match environment.into_iter().find(|word| is_long(word)) {
        None => Ok(()),
        Some(word) => {
            let name = word.split(|byte| *byte == b'=').next().unwrap_or_default();
            let name: String = String::from_utf8_lossy(name).chars().take(64).collect();
            Err(WordTooLong {
                which: format!("the variable {name}"),
                bytes: word.len(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_the_kernel_refuses_are_named() {
        let long = vec![b'x'; WORD_BYTES_MAX + 1];
        let most = vec![b'x'; WORD_BYTES_MAX];
        let variable = [b"DATA=".as_slice(), &most].concat();
        let check = |command: &[&[u8]], environment: &[&[u8]]| {
            let checked = check_words(command.iter().copied(), environment.iter().copied());
            checked.map_err(|error| (error.which, error.bytes))
        };
        assert_eq!(check(&[b"echo", &most], &[b"A=b"]), Ok(()));
        let bytes = WORD_BYTES_MAX + 1;
        let expected = Err(("argument 2".to_owned(), bytes));
        assert_eq!(check(&[b"sh", b"-c", &long], &[]), expected);
        let expected = Err(("the program's name".to_owned(), bytes));
        assert_eq!(check(&[&long], &[]), expected);
        let expected = Err(("the variable DATA".to_owned(), WORD_BYTES_MAX + 5));
        assert_eq!(check(&[b"env"], &[b"A=b", &variable]), expected);
    }
}
