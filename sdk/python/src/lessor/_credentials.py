"""What a client trusts, and what it proves its identity with: CA, client certificate and API key."""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Credentials:
    """All of it is optional. Missing values come from LESSOR_CA_FILE, LESSOR_CLIENT_CERTIFICATE, LESSOR_CLIENT_KEY,
    LESSOR_API_KEY_FILE and LESSOR_API_KEY; a file with a key is preferred.

    `ca_file` has the CAs of servers in PEM, by default those that this machine trusts. `client_certificate` and
    `client_key` are PEM files for servers that ask for a certificate."""

    ca_file: Optional[str] = None
    client_certificate: Optional[str] = None
    client_key: Optional[str] = None
    api_key_file: Optional[str] = None
    api_key: Optional[str] = field(default=None, repr=False)

    def ssl_context(self) -> ssl.SSLContext:
        certificate = self.client_certificate or os.environ.get("LESSOR_CLIENT_CERTIFICATE")
        key = self.client_key or os.environ.get("LESSOR_CLIENT_KEY")
        if bool(certificate) != bool(key):
            raise ValueError("a client certificate needs its private key, and a key its certificate: name both files")
        context = ssl.create_default_context(cafile=self.ca_file or os.environ.get("LESSOR_CA_FILE") or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if certificate:
            context.load_cert_chain(certificate, key)
        return context

    def authorization(self, scheme: str, host: str) -> Optional[str]:
        """The header for a server. A key is never sent in plain text over a network."""
        key = self._key()
        if key is None:
            return None
        if scheme != "https" and not _is_loopback(host):
            raise ValueError(
                f"the API key is not sent to {host} over plain http, where others could read it; use an https:// URL, or"
                " call a server on this machine by a loopback address"
            )
        return f"Bearer {key}"

    def _key(self) -> Optional[str]:
        source, key = "the API key", self.api_key
        file = self.api_key_file or (None if key else os.environ.get("LESSOR_API_KEY_FILE"))
        if file:
            source = file
            with open(file, encoding="utf-8") as opened:
                key = opened.read()
        elif not key:
            source, key = "LESSOR_API_KEY", os.environ.get("LESSOR_API_KEY")
        key = (key or "").strip()
        if not key and not file:
            return None
        if not key or not all("!" <= character <= "~" for character in key):
            raise ValueError(f"{source} is not a key: it must be one line of printable ASCII without spaces")
        return key


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
