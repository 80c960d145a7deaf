#!/usr/bin/env python3
"""Captures on servers: read in ranges as if they were here, and every way in which a server does not give what was asked
for is an error with its name, not a wrong result."""
import json
import os
import re
import subprocess

import h5py

from support import MODELS, Scratch, capture, main, npudiff
from servers import KEY, REGION, SECRET, Server

MODEL, VIT = MODELS / "cnn.w8a8.onnx", "vit.w8a16.onnx"
# What the caller has set, such as a proxy, is none of this.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.upper().endswith("_PROXY") and not name.startswith(("AWS_", "CURL_"))}


class Servers(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.captures = cls.shared / "captures"
        capture("cnn.w8a8.onnx", ["cpu", "emu:htp-v73"], ["uniform:8"], cls.captures)

    def setUp(self):
        super().setUp()
        self.paths = sorted(self.captures.glob("*.h5"))
        files = {path.name: path.read_bytes() for path in self.paths}
        files["a.h5"] = self.paths[0].read_bytes()
        files["empty.h5"] = b""
        files["text.h5"] = b"no HDF5 at all\n" * 5000
        files["damaged.h5"] = files["a.h5"][:len(files["a.h5"]) // 2]
        self.server = Server(files)
        self.server.__enter__()
        self.addCleanup(self.server.__exit__)

    def url(self, how, name="a.h5"):
        return f"{self.server.url}/{how}/{name}"

    def run_on(self, *arguments, expect=0, **variables):
        """What npudiff said: the finished process."""
        self.server.forget()
        done = npudiff(*arguments, expect=None, env=dict(CLEAN, **variables))
        self.assertIn(done.returncode, expect if isinstance(expect, tuple) else (expect,), (arguments, done.stderr))
        return done

    def without_names(self, text):
        for path in self.paths:
            text = text.replace(self.url("good", path.name), "NAME").replace(str(path), "NAME")
        return text

    def test_results_are_those_of_files(self):
        here = [str(path) for path in self.paths]
        there = [self.url("good", path.name) for path in self.paths]
        explain = ["explain", "--quantised", MODEL]
        for command, n in ((["compare", "--json"], 2), (["info", "--json"], 1), (["info", "--list", "--json"], 1), (["verify", "--json"], 2),
                           (["verify", "--paranoid", "--json"], 1), ([*explain, "--json"], 2)):
            wanted = npudiff(*command, *here[:n], expect=None)
            got = self.run_on(*command, *there[:n], expect=wanted.returncode)
            self.assertEqual(self.without_names(got.stdout), self.without_names(wanted.stdout), command)
            self.assertIn(wanted.returncode, (0, 1, 4))
            self.assertGreater(self.server.n_requests, n)
        npudiff("report", *here, "-o", self.folder / "here.html")
        self.run_on("report", *there, "-o", self.folder / "there.html")
        self.assertEqual(self.without_names((self.folder / "there.html").read_text()),
                         self.without_names((self.folder / "here.html").read_text()))

    def test_equal_captures_are_not_read(self):
        """One digest for all digests of a tensor decides: below 1 % is fetched, of one that differs more."""
        large, other = self.folder / "large.h5", self.folder / "other.h5"
        capture(VIT, ["cpu"], ["uniform:400"], large)
        n_bytes = large.stat().st_size
        self.server.files["large.h5"] = large.read_bytes()
        self.run_on("compare", self.url("good", "large.h5"), self.url("dated", "large.h5"))
        self.assertLess(self.server.n_bytes, 2 * n_bytes * 0.01)
        self.run_on("verify", self.url("good", "large.h5"))
        self.assertGreater(self.server.n_bytes, n_bytes * 0.95)
        capture(VIT, ["emu:htp-v73"], ["uniform:400"], other)
        self.server.files["other.h5"] = other.read_bytes()
        there = self.run_on("compare", "--json", self.url("good", "large.h5"), self.url("good", "other.h5"), expect=1)
        here = npudiff("compare", "--json", large, other, expect=1)
        self.assertEqual(there.stdout.replace(self.server.url + "/good", str(self.folder)), here)
        # The server may fail after the captures were opened, when digests are read.
        digests = self.server.files["other.h5"]
        with h5py.File(other) as file:
            at = next(iter(file["probes/uniform/digests"].values())).id.get_offset()
        self.server.files["other.h5"] = digests[:at] + bytes([digests[at] ^ 1]) + digests[at + 1:]
        said = self.run_on("compare", self.url("good", "large.h5"), self.url("good", "other.h5"), expect=2)
        self.assertIn("ND-727", said.stderr)

    def test_servers_that_keep_to_the_rules_are_read(self):
        for how in ("weak", "dated", "elsewhere", "cut-once", "busy-once"):
            self.run_on("info", self.url(how))

    def test_every_wrong_answer_has_its_message(self):
        cases = {
            "whole": ("ND-232", "sends the whole file where a range was asked for"),
            "unmarked": ("ND-232", "neither ETag nor Last-Modified"),
            "short": ("ND-232", "shorter than it says"),
            "shifted": ("ND-232", "different range than was asked for"),
            "zipped": ("ND-232", "compresses what it sends"),
            "endless": ("ND-232", "longer than it says"),
            "cut": ("ND-229", "in the middle of an answer, 3 times"),
            "busy": ("ND-229", r"cannot answer now \(HTTP status 503, SlowDown\)"),
            "refused": ("ND-229", r"refuses it \(HTTP status 403\)"),
            "round": ("ND-229", "more than 5 redirections"),
            "local": ("ND-229", "Protocol"),
            "changing": ("ND-721", "was changed on its server"),
            "replaced": ("ND-721", "was changed on its server"),
            "grown": ("ND-721", "was changed on its server"),
        }
        for how, (number, words) in cases.items():
            done = self.run_on("verify", "-q", self.url(how), expect=2)
            self.assertIn(number, done.stderr, how)
            self.assertRegex(done.stderr, words, how)
            self.assertIn(self.url(how), done.stderr, how)

    def test_no_file_makes_it_connect(self):
        """A name of a server counts on the command line alone: in files it is a path."""
        url = self.url("good")
        result = (MODELS.parent / "fuzz/document/qualification.json").read_text()
        (self.folder / "result.json").write_text(re.sub(r'"captures/[^"]*"', json.dumps(url), result))
        (self.folder / "raw.yaml").write_text(f"tensors:\n- {{name: a, dtype: uint8, shape: [1], file: '{url}'}}\n")
        (self.folder / "facts.yaml").write_text(f"model_file: '{url}'\nlogs: ['{url}']\n")
        campaign = f"models:\n- {{quantised: '{MODEL}', probes: ['uniform:2']}}\ndevices: [exact, 'emu:floor']\nreference: quantised\npolicy:\n- {{gate: bitwise}}\n"
        commands = [["report", self.folder, "-o", self.folder / "r.html"], ["report", self.folder / "result.json", "-o", self.folder / "s.html"],
                    ["import", "raw", self.folder / "raw.yaml", "-o", self.folder / "b.h5"],
                    ["import", "numpy", MODELS / "digits-test.npz", "--facts", self.folder / "facts.yaml", "-o", self.folder / "c.h5"]]
        for i, (old, new) in enumerate(((str(MODEL), url), ("uniform:2", f"x={url}"), ("quantised\npolicy", f"'{url}'\npolicy"), ("emu:floor", f"emu:{url}"))):
            path = self.folder / f"c{i}.yaml"
            path.write_text(campaign.replace(old, new))
            commands.append(["qualify", path, "-o", self.folder / f"q{i}"])
        for command in commands:
            done = self.run_on(*command, expect=(0, 1, 2))
            self.assertEqual(self.server.seen, [], (command, done.stderr))
        self.run_on("info", url)
        self.assertNotEqual(self.server.seen, [])

    def test_what_is_not_there_is_named(self):
        for name, words in (("none.h5", r"does not have it \(HTTP status 404, NoSuchKey\)"), ("empty.h5", "the file is empty"),
                            ("text.h5", "not an HDF5 file"), ("damaged.h5", "cut off")):
            done = self.run_on("info", self.url("good", name), expect=2)
            self.assertRegex(done.stderr, words)
            self.assertIn(self.url("good", name), done.stderr)
        done = self.run_on("info", "http://localhost:1/a.h5", expect=2)
        self.assertRegex(done.stderr, "cannot fetch the file: .*localhost")

    def test_a_slow_server_is_given_up(self):
        done = self.run_on("info", self.url("slow"), expect=2, NPUDIFF_FETCH_LIMIT="1")
        self.assertRegex(done.stderr, "too slow or does not answer")

    def test_signatures_are_not_shown(self):
        url = self.url("secret") + "?sig=right"
        for command in (["info"], ["compare", url], ["verify", "--json"], ["info", "--json"]):
            done = self.run_on(*command, url)
            self.assertNotIn("sig=", done.stdout + done.stderr)
        done = self.run_on("verify", self.url("secret") + "?sig=wrong", expect=2)
        self.assertNotIn("sig=", done.stdout + done.stderr)

    def test_requests_to_a_bucket_are_signed(self):
        variables = {"AWS_ENDPOINT_URL": self.server.url, "AWS_REGION": REGION}
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        self.server.files["dir with +/a.h5"] = self.server.files["a.h5"]
        self.server.files["dir/../a.h5"] = self.server.files["text.h5"] # not a.h5: a key is no path
        for name in ("a.h5", "dir with +/a.h5"):
            self.run_on("verify", f"s3://bucket/{name}", **variables, **keys)
        for name, words in (("dir/../a.h5", "not an HDF5 file"), ("x/./a.h5", "NoSuchKey"), ("a.h5/..", "NoSuchKey")):
            self.assertRegex(self.run_on("info", f"s3://bucket/{name}", expect=2, **variables, **keys).stderr, words)
        self.run_on("info", "s3://bucket/a.h5", **variables, **keys, AWS_SESSION_TOKEN="token/+=")
        self.assertEqual({seen["x-amz-security-token"] for seen in self.server.seen}, {"token/+="})
        self.run_on("info", "s3://public/a.h5", **variables) # without keys: unsigned
        self.assertTrue(all("Authorization" not in seen for seen in self.server.seen))
        for wrong, words in (({}, "are not set"), (dict(keys, AWS_SECRET_ACCESS_KEY="no"), "SignatureDoesNotMatch")):
            done = self.run_on("info", "s3://bucket/a.h5", expect=2, **variables, **wrong)
            self.assertRegex(done.stderr, words)
        done = self.run_on("info", "s3://bucket", expect=2)
        self.assertRegex(done.stderr, "s3://BUCKET/KEY")

    def test_certificates_are_checked(self):
        key, certificate = self.folder / "key.pem", self.folder / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days",
                        "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        with Server(self.server.files, (certificate, key)) as secure:
            secure.other_url = self.server.url
            done = self.run_on("info", secure.url + "/good/a.h5", expect=2)
            self.assertRegex(done.stderr, "certificate")
            self.run_on("info", secure.url + "/good/a.h5", CURL_CA_BUNDLE=str(certificate))
            # A secure name leads to no server that is not.
            done = self.run_on("info", secure.url + "/plain/a.h5", expect=2, CURL_CA_BUNDLE=str(certificate))
            self.assertRegex(done.stderr, "Protocol")


if __name__ == "__main__":
    main()
