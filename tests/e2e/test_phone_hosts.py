#!/usr/bin/env python3
"""Phones that hang on a different machine: adb:SERIAL@HOST:PORT. The other machine is a real adb server on a port of
this one, which npudiff's own adb is not told of; the phones are real adbd servers (phones.py)."""
import json
import socket

from phone_captures import by_address, differences
from phones import Shelf, free_port, skip_without
from support import Capture, MODELS, Scratch, capture, main, text

MODEL = MODELS / "cnn.w8a8.onnx"
PROBE = "uniform:20"


class Hosts(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shelf = Shelf()
        cls.addClassCleanup(cls.shelf.close)
        cls.phones = [cls.shelf.phone("gen3"), cls.shelf.phone("gen1")]
        cls.host = f"127.0.0.1:{cls.shelf.port}"
        cls.own_port = free_port() # of npudiff's own adb, which has no server and no phone
        cls.local = cls.shared / "local.h5"
        capture(MODEL, ["htp-sim:gen3"], [PROBE], cls.local)

    def run_there(self, *arguments, expect=0):
        done = self.shelf.run(*arguments, ANDROID_ADB_SERVER_PORT=str(self.own_port))
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def capture(self, device, output, *arguments, expect=0):
        return self.run_there("capture", MODEL, "-d", device, "-p", PROBE, "-o", output, "--skip-untouched", *arguments, expect=expect)

    def assert_no_own_server(self):
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.own_port), timeout=5)

    def test_a_phone_of_a_different_machine(self):
        address = f"{self.phones[0].serial}@{self.host}"
        output = self.folder / "x.h5"
        self.capture(f"adb:{address}/agent/htp-sim:gen3", output)
        self.assertEqual(differences(output, self.local), [])
        with Capture(output) as opened:
            self.assertEqual(text(opened.file["device"].attrs["address"]), address)
        self.assert_no_own_server()

    def test_every_phone_of_a_different_machine(self):
        self.capture(f"adb:*@{self.host}/cpu", self.folder)
        self.assertEqual(sorted(by_address(self.folder)), sorted(f"{p.serial}@{self.host}" for p in self.phones))

    def test_the_phones_are_listed(self):
        listed = json.loads(self.run_there("devices", "--server", self.host, "--json"))["phones"]
        self.assertEqual(sorted((p["device"], p["soc"]) for p in listed),
                         sorted((f"adb:{p.serial}@{self.host}", sm)
                                for p, sm in zip(self.phones, ("SM8650", "SM8450"))))
        said = self.run_there("devices", "--server", self.host)
        self.assertIn(f"adb:{self.phones[0].serial}@{self.host}", said)
        self.assert_no_own_server()

    def test_several_phones_and_no_serial(self):
        said = self.capture(f"adb:@{self.host}", self.folder / "x.h5", expect=2)
        self.assertIn(f"name one, as in 'adb:{min(p.serial for p in self.phones)}@{self.host}', or all with "
                      f"'adb:*@{self.host}'", said)

    def check_unreachable(self, host, word):
        """Every way to name it ends in time, with exit code 5, the host and the reason."""
        for arguments in (("capture", MODEL, "-d", f"adb:R5@{host}/cpu", "-p", PROBE, "-o", self.folder / "x.h5"),
                          ("capture", MODEL, "-d", f"adb:*@{host}/cpu", "-p", PROBE, "-o", self.folder / "y"),
                          ("capture", MODEL, "-d", f"adb:@{host}/cpu", "-p", PROBE, "-o", self.folder / "y"),
                          ("devices", "--server", host)):
            said = self.run_there(*arguments, expect=5)
            self.assertIn(f"cannot reach adb's server at '{host}'", said)
            self.assertIn(word, said)
        with Capture(self.folder / "x.h5") as opened:
            self.assertEqual((opened.status, opened.failure()["stage"]), ("failed", "connect"))
            self.assertIn(host, opened.failure()["message"])
        self.assertFalse((self.folder / "y").exists())

    def test_a_host_that_refuses(self):
        self.check_unreachable(f"127.0.0.1:{free_port()}", "refused")

    def test_a_host_that_takes_the_connection_and_never_answers(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.check_unreachable(f"127.0.0.1:{silent.getsockname()[1]}", "no answer within 15 s")

    def test_a_server_that_is_none(self):
        self.assertIn("HOST:PORT", self.run_there("devices", "--server", "lab7", expect=2))


if __name__ == "__main__":
    skip_without("adb", "adbd")
    main()
