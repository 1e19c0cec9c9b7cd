//! TLS over the stamped socket: rustls does the cryptography, and the stamps stay those of the bytes that it decrypts.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

/// How certificates are checked.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of certificates.
    #[error("ca_file {path}: {fault}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        fault: String,
    },
    /// The host cannot stand in a certificate.
    #[error("`{0}` is no name that a certificate can have")]
    Name(String),
    /// The system's certificates, or the provider.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// The certificates in a PEM file.
///
/// # Errors
/// If it cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fault = |fault: String| TlsError::File { path: path.display().to_string(), fault };
    let pem = std::fs::read(path).map_err(|e| fault(e.to_string()))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(fault("it holds no certificate".into())),
        Ok(all) => Ok(all),
        Err(e) => Err(fault(e.to_string())),
    }
}

impl Tls {
    /// Checks certificates against the system's and those of `extra`, or not at all. HTTP/1.1 is what is asked for.
    ///
    /// # Errors
    /// If the host is no name or address, or the system's certificates cannot be read.
    pub fn new(host: &str, extra: Vec<CertificateDer<'static>>, insecure: bool) -> Result<Tls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let verifier: Arc<dyn ServerCertVerifier> = if insecure {
            Arc::new(AnyCertificate(provider))
        } else {
            Arc::new(rustls_platform_verifier::Verifier::new_with_extra_roots(extra, provider)?)
        };
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|_| TlsError::Name(host.to_owned()))?;
        Ok(Tls { config: Arc::new(config), name })
    }

    /// A session that is about to shake hands.
    pub fn session(&self) -> Result<Session, rustls::Error> {
        Ok(Session { tls: Box::new(ClientConnection::new(self.config.clone(), self.name.clone())?), closed: false })
    }
}

/// One connection's TLS.
#[derive(Debug)]
pub struct Session {
    tls: Box<ClientConnection>,
    closed: bool,
}

impl Session {
    /// Whether the handshake still goes on.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether the peer has said that no more comes.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes in bytes of the connection and hands what they decrypt to, by way of `plain`, to `each`.
    ///
    /// # Errors
    /// If they are no TLS, or the certificate is refused.
    pub fn receive(&mut self, mut bytes: &[u8], plain: &mut [u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
        while !bytes.is_empty() && !self.closed {
            self.tls.read_tls(&mut bytes)?;
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            loop {
                match self.tls.reader().read(plain) {
                    Ok(0) => break,
                    Ok(n) => each(&plain[..n]),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
            self.closed |= state.peer_has_closed();
        }
        Ok(())
    }

    /// Takes in what is to be sent.
    ///
    /// # Errors
    /// Never, short of a session that is broken.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tls.writer().write(bytes)
    }

    /// Moves what is to be written to the connection into `out`.
    ///
    /// # Errors
    /// Never: memory takes all.
    pub fn take_output(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(out)?;
        }
        Ok(())
    }
}

/// Takes any certificate, as `insecure` asks; signatures are still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
