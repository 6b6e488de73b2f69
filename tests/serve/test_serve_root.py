"""What is at / of hearth serve: the page for browsers, with what protects it, and a word for other clients."""

import base64
import hashlib
import re
import unittest

from support import ROOT, TINY, ServeTest

HTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class Root(ServeTest):
    model = TINY

    def test_clients_that_want_no_html(self):
        for accept in [None, "*/*", "application/json, */*", "text/*", "text/html;q=0", "text/html; level=1; q=0.00, */*", "xtext/html", "text/htmlx"]:
            with self.subTest(accept):
                status, fields, body = self.server.get("/", {"Accept": accept} if accept else None)
                self.assertEqual((status, body), (200, "Ollama is running"))
                self.assertTrue(fields["content-type"].startswith("text/plain"))
                self.assertNotIn("content-security-policy", fields)

    def test_browsers(self):
        for accept in [HTML, "text/html", "TEXT/HTML;q=0.1", "*/*;q=0, text/html ; q=0.001"]:
            with self.subTest(accept):
                status, fields, body = self.server.get("/", {"Accept": accept})
                self.assertEqual((status, fields["content-type"]), (200, "text/html; charset=utf-8"))
                self.assertEqual(body, (ROOT / "src/serve/page.html").read_text(encoding="utf-8"))
                self.assertEqual((fields["x-content-type-options"], fields["cache-control"]), ("nosniff", "no-cache"))
                self.assertEqual(fields["vary"], "Accept")

    def test_head_announces_and_sends_nothing(self):
        self.assertEqual(self.server.request("HEAD", "/")[1]["content-length"], str(len("Ollama is running")))
        status, fields, body = self.server.request("HEAD", "/", None, {"Accept": HTML})
        self.assertEqual((status, body), (200, ""))
        self.assertEqual(int(fields["content-length"]), len((ROOT / "src/serve/page.html").read_bytes()))

    def test_the_policy_allows_what_the_page_has_and_nothing_else(self):
        _, fields, body = self.server.get("/", {"Accept": HTML})
        policy = dict(part.strip().split(" ", 1) for part in fields["content-security-policy"].split(";"))
        for directive, tag in [("script-src", "script"), ("style-src", "style")]:
            (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", body, re.S)
            hashed = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            self.assertEqual(policy[directive], f"'sha256-{hashed}'")
        self.assertEqual((policy["default-src"], policy["connect-src"]), ("'none'", "'self'"))

    def test_the_page_is_one_small_file_of_its_own(self):
        body = self.server.get("/", {"Accept": HTML})[2]
        self.assertLess(len(body.encode()), 60000)
        for never in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", " onclick=", "https://"]:
            self.assertNotIn(never, body)
        # A name space of SVG is no address that anything is fetched from.
        self.assertEqual(set(re.findall(r"http://[^'\"\s]+", body)), {"http://www.w3.org/2000/svg"})

    def test_other_methods(self):
        self.assertEqual(self.server.post("/", {})[0], 405)


class NoPage(ServeTest):
    model, options = TINY, ("--no-page",)

    def test_there_is_none(self):
        for method, body in [("GET", "Ollama is running"), ("HEAD", "")]:
            status, fields, got = self.server.request(method, "/", None, {"Accept": HTML})
            self.assertEqual((status, got), (200, body))
            self.assertEqual(int(fields["content-length"]), len("Ollama is running"))


if __name__ == "__main__":
    unittest.main()
