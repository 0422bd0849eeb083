//! Numbers and texts from a seed (xorshift64*).

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Returns a number below a bound; 0 where the bound is.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// Returns one of these; the default where there are none.
    pub(super) fn pick<T: Clone + Default>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len());
        of.get(at).cloned().unwrap_or_default()
    }

    pub(super) fn chars(&mut self, of: &str, count: usize) -> String {
        let of: Vec<char> = of.chars().collect();
        (0..count).map(|_| self.pick(&of)).collect()
    }

    pub(super) fn digits(&mut self, count: usize) -> String {
        self.chars("0123456789", count)
    }

    pub(super) fn hex(&mut self, count: usize) -> String {
        self.chars("0123456789abcdef", count)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| u8::try_from(self.below(256)).unwrap_or_default())
            .collect()
    }

    /// Fills a form: `{a:20}` is twenty letters and digits; the classes are in [`class`].
    pub(super) fn fill(&mut self, form: &str) -> String {
        let mut filled = String::new();
        let mut rest = form;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let (inner, after) = after.split_once('}').unwrap_or((after, ""));
            let (name, count) = inner.split_once(':').unwrap_or((inner, "1"));
            match count.parse() {
                Ok(count) => filled.push_str(&self.chars(class(name), count)),
                Err(_) => filled.push_str(inner),
            }
            rest = after;
        }
        filled.push_str(rest);
        filled
    }

    pub(super) fn uuid(&mut self) -> String {
        self.fill("{h:8}-{h:4}-4{h:3}-a{h:3}-{h:12}")
    }
}

/// Returns the letters of a class.
fn class(name: &str) -> &'static str {
    match name {
        "d" => "0123456789",
        "h" => "0123456789abcdef",
        "H" => "0123456789ABCDEF",
        "l" => "abcdefghijklmnopqrstuvwxyz0123456789",
        "z" => "abcdefghijklmnopqrstuvwxyz",
        "U" => "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        "Z" => "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "3" => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
        "q" => "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
        "b" => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        "w" => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
        _ => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
    }
}

/// Writes bytes in base64, with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    let letters = class("b").as_bytes();
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = (0..3).fold(0_u32, |group, at| {
            group << 8 | chunk.get(at).copied().map_or(0, u32::from)
        });
        for place in 0..4 {
            let at = (group >> (18 - 6 * place) & 63) as usize;
            let letter = letters.get(at).copied().map_or('=', char::from);
            text.push(if place <= chunk.len() { letter } else { '=' });
        }
    }
    text
}
