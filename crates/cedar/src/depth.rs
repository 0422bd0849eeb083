//! How deep a policy is, told from its text: what reads, prints, checks and decides on it calls
//! itself as often, and none of that is begun where a stack could come to its end.

/// How many operators can be in each other. Reading, checking and printing that comes to no end of a
/// stack of 2 MiB, which a thread has where nothing else is said, also in a build that is not
/// optimised. Deciding on it there, Cedar may find too little left (`recursion limit reached`):
/// an error, and so a denial.
pub(crate) const DEPTH_MAX: usize = 128;

/// What would be right.
pub(crate) const INSTEAD: &str = "write [\"a\", \"b\"].contains(x) for a row of ==, brackets around \
                                  each eight or so of a long || or &&, or several policies";

/// As how many operators `is … in` counts. Cedar makes two of it, each with all that stands before
/// `is`: a few dozen within each other, which fit a policy, would be read for hours.
const TWOFOLD: usize = 16;

/// One policy on its way. What is told is never less than what Cedar makes of it: a row of `||`,
/// `&&` or `+` is as deep as it is long, and so are all `when` and `unless` of a policy together,
/// which are one row of `&&`.
#[derive(Debug, Default)]
pub(crate) struct Depth {
    policy: Within,
    open: Vec<Within>,
    before: [char; 2],
    /// The last that is no blank; of a text the `"` that begins it, of a comment its `/`.
    ended: Option<char>,
}

/// What is known within one bracket, since it opened or since its last comma.
#[derive(Debug, Default)]
struct Within {
    /// The most of what a comma ended.
    ended: usize,
    /// `||` and `if`, or the clauses of a policy.
    ors: usize,
    /// The most between two `||`.
    of_or: usize,
    /// `&&` since the last `||`.
    ands: usize,
    /// The most between two `&&` since then.
    of_and: usize,
    /// Operators that bind more closely, since the last `&&`.
    closer: usize,
    /// The most in brackets since then.
    inner: usize,
    /// Whether an `is` stood there since then.
    is_typed: bool,
}

impl Within {
    fn and(&mut self) {
        // One for a comparison, of which there is at most one here.
        self.of_and = self.of_and.max(1 + self.closer + self.inner);
        (self.closer, self.inner, self.is_typed) = (0, 0, false);
    }

    fn or(&mut self) {
        self.and();
        self.of_or = self.of_or.max(self.ands + self.of_and);
        (self.ands, self.of_and) = (0, 0);
    }

    fn end(&mut self) {
        self.or();
        self.ended = self.ended.max(self.ors + self.of_or);
        (self.ors, self.of_or) = (0, 0);
    }
}

impl Depth {
    /// A character that stands in no text and no comment; of these what begins them. What ends a
    /// text does not come.
    pub(crate) fn take(&mut self, one: char) {
        let is_top = self.open.is_empty();
        let here = self.open.last_mut().unwrap_or(&mut self.policy);
        let [last_but_one, last] = self.before;
        self.before = [last, one];
        let after = self.ended;
        if !one.is_ascii_whitespace() && one != '/' {
            self.ended = Some(one);
        }
        match (last, one) {
            ('|', '|') => {
                here.or();
                here.ors += 1;
            }
            ('&', '&') => {
                here.and();
                here.ands += 1;
            }
            // A word that begins so is counted, whatever it is.
            ('i', 'f') if !is_of_word(last_but_one) => here.ors += 1,
            ('i', 's') if begins_word(last_but_one) => here.is_typed = true,
            ('i', 'n') if begins_word(last_but_one) && here.is_typed => here.closer += TWOFOLD,
            (_, '.' | '+' | '-' | '*' | '!') => here.closer += 1,
            (_, ',') if !is_top => here.end(),
            (_, '(' | '[' | '{') => {
                if is_top && one == '{' {
                    here.ors += 1;
                }
                if !is_top && one != '{' && after.is_some_and(is_end) {
                    // An index or a call: each is around all before it.
                    here.closer += 1;
                }
                self.open.push(Within::default());
            }
            (_, ')' | ']' | '}') => self.close(),
            (_, _) => {}
        }
    }

    fn close(&mut self) {
        if let Some(mut one) = self.open.pop() {
            one.end();
            let around = self.open.last_mut().unwrap_or(&mut self.policy);
            around.inner = around.inner.max(1 + one.ended);
        }
    }

    /// The depth of the policy that ends here; what follows is another.
    pub(crate) fn end(&mut self) -> usize {
        while !self.open.is_empty() {
            self.close();
        }
        let mut policy = std::mem::take(self).policy;
        policy.end();
        policy.ended
    }
}

/// Whether this can end what has a value, or a name; no operator does.
fn is_end(one: char) -> bool {
    is_of_word(one) || matches!(one, ')' | ']' | '}' | '"')
}

/// Whether what follows this can be a word, and no member's name; behind a number, too.
fn begins_word(before: char) -> bool {
    !before.is_ascii_alphabetic() && !matches!(before, '_' | '.')
}

fn is_of_word(one: char) -> bool {
    one.is_ascii_alphanumeric() || one == '_'
}
