//! The depth of a policy, measured on its text. Reading, printing, checking and evaluating a policy
//! recurse as deep, so none of them is begun on a policy that could overflow a stack.

/// The most operators nested in each other. Reading, checking and printing such a policy fits a
/// stack of 2 MiB, a thread's default, also in an unoptimised build. Evaluating it there, Cedar may
/// find too little stack left (`recursion limit reached`): an error, and so a denial.
pub(crate) const DEPTH_MAX: usize = 128;

/// The hint given for a policy that is too deep.
pub(crate) const INSTEAD: &str = "write [\"a\", \"b\"].contains(x) for a row of ==, brackets around \
                                  each eight or so of a long || or &&, or several policies";

/// The number of operators that `is … in` counts for. Cedar expands it into two, each with all that
/// stands before `is`: a few dozen nested ones fit a policy and would take hours to read.
const TWOFOLD: usize = 16;

/// The depth of one policy while it is scanned. The result is never less than the depth that Cedar
/// builds: a chain of `||`, `&&` or `+` is as deep as it is long, and so are all `when` and
/// `unless` clauses of a policy together, which form one chain of `&&`.
#[derive(Debug, Default)]
pub(crate) struct Depth {
    policy: Within,
    open: Vec<Within>,
    before: [char; 2],
    /// The last character other than whitespace; for a string its opening `"`, for a comment its
    /// `/`.
    ended: Option<char>,
}

/// The counts within one bracket, since it opened or since its last comma.
#[derive(Debug, Default)]
struct Within {
    /// The greatest depth of an element ended by a comma.
    ended: usize,
    /// `||` and `if`, or the clauses of a policy.
    ors: usize,
    /// The greatest depth between two `||`.
    of_or: usize,
    /// `&&` since the last `||`.
    ands: usize,
    /// The greatest depth between two `&&` since then.
    of_and: usize,
    /// Operators that bind more closely, since the last `&&`.
    closer: usize,
    /// The greatest depth in brackets since then.
    inner: usize,
    /// Set when an `is` has been seen since then.
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
    /// Takes a character outside strings and comments, or the one that opens either. The one that
    /// closes a string is not passed.
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

    /// Returns the depth of the policy that ends here and starts the next one.
    pub(crate) fn end(&mut self) -> usize {
        while !self.open.is_empty() {
            self.close();
        }
        let mut policy = std::mem::take(self).policy;
        policy.end();
        policy.ended
    }
}

/// Returns whether a character can end a value or a name; no operator does.
fn is_end(one: char) -> bool {
    is_of_word(one) || matches!(one, ')' | ']' | '}' | '"')
}

/// Returns whether a word other than a member's name can begin after this character, also directly
/// after a number.
fn begins_word(before: char) -> bool {
    !before.is_ascii_alphabetic() && !matches!(before, '_' | '.')
}

fn is_of_word(one: char) -> bool {
    one.is_ascii_alphanumeric() || one == '_'
}
