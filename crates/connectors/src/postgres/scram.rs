//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), with channel binding to the server's
//! certificate where the server offers that (`tls-server-end-point`, RFC 5929).
//!
//! The primitives are those of the TLS library. Crates for SCRAM bring along more than is here, and
//! accept any number of iterations from a server.

use std::num::NonZeroU32;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use aws_lc_rs::{constant_time, hmac, pbkdf2, rand};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// The mechanisms without channel binding, and with it.
pub(crate) const PLAIN: &str = "SCRAM-SHA-256";
pub(crate) const BOUND: &str = "SCRAM-SHA-256-PLUS";

/// The iteration counts that a server may ask for. Fewer than RFC 7677, section 4, demands would
/// make guessing easier for a server; more are work that it has done here.
const ITERATIONS_MIN: u32 = 4096;
const ITERATIONS_MAX: u32 = 1 << 16;
const NONCE_BYTES: usize = 24;
/// The longest salt, and the longest message of a server, bytes.
const SALT_BYTES_MAX: usize = 256;
const MESSAGE_BYTES_MAX: usize = 2048;

/// The binding of the exchange to the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// By the hash of the server's certificate.
    EndPoint(Vec<u8>),
    /// None, since the server does not offer it.
    NotOffered,
    /// None, since there is no certificate, or no hash is defined for its signature algorithm.
    Impossible,
}

impl Binding {
    pub(crate) fn mechanism(&self) -> &'static str {
        match self {
            Self::EndPoint(_) => BOUND,
            Self::NotOffered | Self::Impossible => PLAIN,
        }
    }

    fn header(&self) -> &'static str {
        match self {
            Self::EndPoint(_) => "p=tls-server-end-point,,",
            Self::NotOffered => "y,,",
            Self::Impossible => "n,,",
        }
    }

    fn input(&self) -> Vec<u8> {
        let data = match self {
            Self::EndPoint(hash) => hash.as_slice(),
            Self::NotOffered | Self::Impossible => &[],
        };
        [self.header().as_bytes(), data].concat()
    }
}

/// An exchange at its beginning.
pub(crate) struct ClientFirst {
    binding: Binding,
    /// The user; empty, since PostgreSQL takes that of the startup packet.
    user: &'static str,
    nonce: String,
}

/// An exchange whose server signature is still to come.
pub(crate) struct ClientFinal {
    signature: Zeroizing<Vec<u8>>,
}

impl ClientFirst {
    /// Begins an exchange with a random nonce.
    pub(crate) fn new(binding: Binding) -> Result<Self, &'static str> {
        let mut random = [0; NONCE_BYTES];
        rand::fill(&mut random).map_err(|_| "there are no random numbers")?;
        Ok(Self {
            binding,
            user: "",
            nonce: STANDARD.encode(random),
        })
    }

    /// Returns the client's first message.
    pub(crate) fn first(&self) -> String {
        format!("{}{}", self.binding.header(), self.bare())
    }

    fn bare(&self) -> String {
        format!("n={},r={}", self.user, self.nonce)
    }

    /// Returns the client's final message, after the server's first. The password is printable
    /// ASCII, which SASLprep (RFC 4013) leaves as it is.
    pub(crate) fn last(
        &self,
        server_first: &[u8],
        password: &[u8],
    ) -> Result<(String, ClientFinal), &'static str> {
        let asked = ServerFirst::read(server_first, &self.nonce)?;
        let mut salted = Zeroizing::new([0; SHA256_OUTPUT_LEN]);
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(
            algorithm,
            asked.iterations,
            &asked.salt,
            password,
            &mut *salted,
        );
        let client_key = Zeroizing::new(mac(&*salted, b"Client Key"));
        let stored_key = digest(&SHA256, &client_key);
        let channel = STANDARD.encode(self.binding.input());
        let without_proof = format!("c={channel},r={}", asked.nonce);
        let message = format!("{},{},{without_proof}", self.bare(), asked.text);
        let client_signature = mac(stored_key.as_ref(), message.as_bytes());
        let both = client_key.iter().zip(&client_signature);
        let proof: Vec<u8> = both.map(|(key, signature)| key ^ signature).collect();
        let server_key = Zeroizing::new(mac(&*salted, b"Server Key"));
        let signature = Zeroizing::new(mac(&server_key, message.as_bytes()));
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        Ok((last, ClientFinal { signature }))
    }
}

impl ClientFinal {
    /// Checks that the server has proven that it knows the password too.
    pub(crate) fn verify(&self, server_last: &[u8]) -> Result<(), &'static str> {
        const WRONG: &str = "it does not prove that it knows the password";
        let said = std::str::from_utf8(server_last).map_err(|_| WRONG)?;
        let said = said.strip_prefix("v=").ok_or(WRONG)?;
        let said = STANDARD.decode(said).map_err(|_| WRONG)?;
        constant_time::verify_slices_are_equal(&said, &self.signature).map_err(|_| WRONG)
    }
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text).as_ref().to_vec()
}

/// A server's first message, as parsed.
struct ServerFirst<'a> {
    text: &'a str,
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: NonZeroU32,
}

impl<'a> ServerFirst<'a> {
    fn read(message: &'a [u8], own: &str) -> Result<Self, &'static str> {
        const UNREADABLE: &str = "what it says of SCRAM cannot be read";
        let text = std::str::from_utf8(message).map_err(|_| UNREADABLE)?;
        if text.len() > MESSAGE_BYTES_MAX {
            return Err(UNREADABLE);
        }
        let mut parts = text.split(',');
        let mut part = |name: &str| {
            let part = parts.next().and_then(|part| part.strip_prefix(name));
            part.ok_or(UNREADABLE)
        };
        let (nonce, salt, iterations) = (part("r=")?, part("s=")?, part("i=")?);
        if parts.next().is_some() {
            // What is mandatory there is not known.
            return Err(UNREADABLE);
        }
        let is_printable = nonce.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
        if !nonce.starts_with(own) || nonce.len() <= own.len() || !is_printable {
            return Err("its random number does not go on from Atoll's");
        }
        let salt = STANDARD.decode(salt).map_err(|_| UNREADABLE)?;
        if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
            return Err(UNREADABLE);
        }
        let is_number = iterations.bytes().all(|byte| byte.is_ascii_digit());
        let count = iterations.parse().ok().filter(|_| is_number);
        let count = count.filter(|count| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(count));
        Ok(Self {
            text,
            nonce,
            salt,
            iterations: count
                .and_then(NonZeroU32::new)
                .ok_or("it asks for fewer than 4096 or more than 65536 iterations of SCRAM")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const PROVEN: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn begun() -> ClientFirst {
        ClientFirst {
            binding: Binding::Impossible,
            user: "user",
            nonce: NONCE.to_owned(),
        }
    }

    #[test]
    fn scram_matches_rfc_vectors() {
        assert_eq!(begun().first(), format!("n,,n=user,r={NONCE}"));
        let (last, proven) = begun().last(FIRST.as_bytes(), b"pencil").unwrap();
        assert_eq!(last, LAST);
        proven.verify(PROVEN.as_bytes()).unwrap();
        let other = PROVEN.replace("6rri", "7rri");
        for wrong in [&other, "e=other-error", "v=", "v=6rri", ""] {
            assert!(proven.verify(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn scram_server_demands_are_bounded() {
        let refused = |text: &str| {
            begun()
                .last(text.as_bytes(), b"pencil")
                .map(drop)
                .unwrap_err()
        };
        let with = |count: &str| FIRST.replace("i=4096", &format!("i={count}"));
        begun().last(with("65536").as_bytes(), b"pencil").unwrap();
        for count in [
            "65537",
            "4294967295",
            "4095",
            "0",
            "-1",
            "+4096",
            "",
            "4096,m=x",
        ] {
            refused(&with(count));
        }
        refused(&FIRST.replacen('r', "x", 2));
        refused(&FIRST.replace(NONCE, "another"));
        refused(&format!("r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
        refused(&FIRST.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""));
        refused(&format!("m=x,{FIRST}"));
    }

    #[test]
    fn scram_binding_is_servers_certificate() {
        let of = |binding: Binding| {
            let begun = ClientFirst {
                binding,
                user: "",
                nonce: NONCE.to_owned(),
            };
            let (last, _) = begun.last(FIRST.as_bytes(), b"pencil").unwrap();
            let channel = last.split(',').next().unwrap().to_owned();
            (begun.first(), channel)
        };
        let (first, channel) = of(Binding::EndPoint(vec![1, 2, 3]));
        assert_eq!(first, format!("p=tls-server-end-point,,n=,r={NONCE}"));
        let bound = STANDARD.encode(b"p=tls-server-end-point,,\x01\x02\x03");
        assert_eq!(channel, format!("c={bound}"));
        // What a server that offers it would find out where somebody has taken that away.
        assert_eq!(of(Binding::NotOffered).0, format!("y,,n=,r={NONCE}"));
        assert_eq!(of(Binding::Impossible).1, "c=biws");
    }
}
