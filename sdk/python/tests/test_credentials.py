"""Credentials: where keys come from, where they go, and that nothing prints them."""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lessor import Client, Credentials


class Keys(unittest.TestCase):
    def setUp(self) -> None:
        self._dir = tempfile.TemporaryDirectory()
        self.addCleanup(self._dir.cleanup)
        self.file = Path(self._dir.name) / "key"
        self.file.write_text("lsk_of_file\n")

    def test_a_key_comes_from_a_file_a_value_or_the_environment(self) -> None:
        def sent(credentials: Credentials) -> object:
            return credentials.authorization("https", "host")

        with mock.patch.dict(os.environ, {"LESSOR_API_KEY": "lsk_of_environment"}):
            self.assertEqual(sent(Credentials()), "Bearer lsk_of_environment")
            self.assertEqual(sent(Credentials(api_key="lsk_given")), "Bearer lsk_given")
            self.assertEqual(sent(Credentials(api_key_file=str(self.file))), "Bearer lsk_of_file")
            with mock.patch.dict(os.environ, {"LESSOR_API_KEY_FILE": str(self.file)}):
                self.assertEqual(sent(Credentials()), "Bearer lsk_of_file")
        self.assertIsNone(sent(Credentials()))

    def test_a_key_is_not_sent_in_plain_text_over_a_network(self) -> None:
        key = Credentials(api_key="lsk_secret")
        for url in ("http://10.0.0.1:8980", "grpc://build.example.com", "localhost.example.com:8980"):
            with self.assertRaisesRegex(ValueError, "over plain http") as refused:
                Client(url, credentials=key)
            self.assertNotIn("secret", str(refused.exception))
        for url in ("http://127.0.0.1:8980", "http://[::1]:8980", "localhost:8980"):
            Client(url, credentials=key)

    def test_a_key_is_in_no_representation_and_no_error(self) -> None:
        self.assertNotIn("secret", repr(Credentials(api_key="lsk_secret")))
        with self.assertRaisesRegex(ValueError, "not a key") as refused:
            Client("http://127.0.0.1:8980", credentials=Credentials(api_key="lsk_secret with spaces"))
        self.assertNotIn("secret", str(refused.exception))

    def test_half_an_identity_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "name both files"):
            Client("https://localhost", credentials=Credentials(client_key=str(self.file)))
