"""The page of hearth serve in a headless Chromium (tests/serve/browser.py). Without one all tests are skipped."""

import json
import re
import unittest

from browser import CHROMIUM, SHIFT, Browser, Page
from support import SCRATCH, TINY, ServeTest, speaking_model, text_encoder

SKIPPED = "skipped: there is no chromium to open the page with; HEARTH_CHROMIUM may name one"
DANGEROUS = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&amp;"
MARKDOWN = """<think>
First *this*.
</think>

# Heading

Some **bold**, *italic* and `code **x**` of 2 * 3 * 4, [a link](http://192.0.2.1/).

- one
- two
  1. inner
  2. <b>inner</b>
- three

| a | b |
|---|---|
| 1 | `2` |

```python
print("<hello>")
    # ```
```

> quoted"""


@unittest.skipUnless(CHROMIUM, SKIPPED)
class PageTest(ServeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, server=None, expected=(), **size):
        """A tab with the page, ready; at the end of the test it must have had no errors but those expected."""
        page = Page(self.browser, (server or self.server).url + "/", **size)
        self.addCleanup(page.close)
        self.addCleanup(lambda: self.assertEqual([p for p in page.problems if not any(e in p for e in expected)], []))
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.reload()
        return page

    def say(self, page, text):
        page.type("#input", text)
        page.press("Enter")

    def answered(self, page, n):
        """Waits until there are n answers, and none is under way; returns the texts of all messages."""
        page.wait(f"document.querySelectorAll('.message.assistant').length === {n} && !document.querySelector('#send').hidden")
        return page.texts(".message .text")

    def set(self, page, **values):
        page.call("Page.bringToFront")  # a tab behind another one is not told that its dialog is closed
        page.click("#settings")
        for name, value in values.items():
            page.type(f"#settings-dialog [name={name}]", str(value))
        page.evaluate("window.dialogClosed = new Promise(done => document.querySelector('#settings-dialog').addEventListener('close', () => done(1), {once: true})); 0")
        page.click("#settings-dialog button.main")
        page.evaluate("dialogClosed")

    def kept(self, page):
        return page.evaluate("Object.keys(localStorage).filter(k => k.startsWith('hearth.conversation.')).map(k => JSON.parse(localStorage[k]))")


class Chat(PageTest):
    model, options = SCRATCH / "says.gguf", ["--alias", "other"]

    @classmethod
    def setUpClass(cls):
        if not CHROMIUM:
            raise unittest.SkipTest(SKIPPED)
        cls.options = [*cls.options, *speaking_model(cls.model, "So.")]
        super().setUpClass()

    def test_a_message_is_answered_as_a_stream(self):
        page = self.open()
        # The growing answer, as it is shown.
        page.evaluate("""window.seen = new Set(); new MutationObserver(() => {
          const e = document.querySelector('.assistant .text'); if (e) seen.add(e.innerText.length);
        }).observe(document.querySelector('#log'), {childList: true, subtree: true, characterData: true}); 0""")
        self.set(page, max_tokens=3000)
        self.say(page, "Hello")
        self.assertEqual(self.answered(page, 1), ["Hello", ("So." * 3000).strip()])
        self.assertGreater(page.evaluate("seen.size"), 1)
        stats = page.text(".assistant .stats")
        self.assertRegex(stats, r"^says · \d+ prompt tokens.* · 3000 tokens · [\d.]+ tokens/s · [\d.]+ s to the first · seed \d+ · reached the limit of tokens$")
        self.assertEqual(page.evaluate("document.querySelector('#log').getAttribute('aria-busy')"), "false")

    def test_the_conversation_goes_on_and_is_there_after_a_reload(self):
        page = self.open()
        self.set(page, max_tokens=2, system="Be brief.")
        self.say(page, "One")
        self.answered(page, 1)
        page.type("#input", "Two")
        page.press("Enter", SHIFT)
        page.call("Input.insertText", text="lines")
        page.press("Enter")
        self.assertEqual(self.answered(page, 2), ["One", "So.So.", "Two\nlines", "So.So."])
        page.reload()
        self.assertEqual(page.wait("document.querySelectorAll('.message').length"), 4)
        self.assertEqual(page.texts(".message .text"), ["One", "So.So.", "Two\nlines", "So.So."])
        self.assertEqual(page.texts("#list .open"), ["One"])
        self.assertEqual(self.kept(page)[0]["system"], "Be brief.")
        # What the server was sent: the system prompt, and both turns.
        sent = page.evaluate("JSON.stringify(messagesFor(current))")
        self.assertEqual([m["role"] for m in json.loads(sent)], ["system", "user", "assistant", "user", "assistant"])
        tokens = self.ok("/apply-template", {"messages": json.loads(sent)[:-1]})["prompt"]
        n = len(self.ok("/tokenize", {"content": tokens})["tokens"])
        self.assertIn(f" {n} prompt tokens", page.texts(".assistant .stats")[1])

    def test_sampling_reaches_the_server(self):
        page = self.open()
        page.evaluate("window.bodies = []; const plain = fetch; window.fetch = (a, o) => { if (o && o.body) bodies.push(o.body); return plain(a, o); }; 0")
        page.wait("document.querySelector('#model').options.length === 2")
        page.evaluate("document.querySelector('#model').value = 'other'; document.querySelector('#model').dispatchEvent(new Event('change')); 0")
        self.set(page, max_tokens=1, temperature=0.5, top_p=0.9, top_k=7, min_p=0.05, seed=12)
        self.say(page, "Hello")
        self.answered(page, 1)
        (body,) = map(json.loads, page.evaluate("bodies"))
        expected = {"model": "other", "max_tokens": 1, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.05, "seed": 12, "stream": True}
        self.assertEqual({name: body[name] for name in expected}, expected)
        self.assertIn("seed 12", page.text(".assistant .stats"))
        page.reload()
        page.wait("document.querySelector('#model').value === 'other'")
        page.click("#settings")
        self.assertEqual(page.evaluate("document.querySelector('[name=top_k]').value"), "7")
        page.click("#reset")
        page.click("#settings-dialog button.main")
        self.assertEqual(page.evaluate("Object.keys(JSON.parse(localStorage['hearth.settings'])).sort().join()"), "model,system")

    def cancelled(self):
        (line,) = [line for line in self.server.get("/metrics")[2].splitlines() if re.match(r"\w*cancelled\w* ", line)]
        return float(line.split()[-1])

    def test_an_answer_is_stopped(self):
        page = self.open()
        for stop in [lambda: page.press("Escape"), lambda: page.click("#stop")]:
            before = self.cancelled()
            self.say(page, "Go on")
            page.wait("document.querySelector('.message:last-of-type.assistant .text')?.innerText.length > 100")
            stop()
            page.wait("!document.querySelector('#send').hidden")
            self.assertIn("stopped", page.texts(".assistant .stats")[-1])
            self.assertRegex(page.texts(".assistant .stats")[-1], r" \d+ tokens · [\d.]+ tokens/s")
            length = page.evaluate("current.messages.at(-1).content.length")
            while self.cancelled() == before:  # the server lets go of it, too
                page.evaluate("new Promise(done => setTimeout(done, 20))")
            self.assertEqual(page.evaluate("current.messages.at(-1).content.length"), length)
        page.reload()
        self.assertEqual(page.wait("document.querySelectorAll('.message').length"), 4)

    def test_edit_and_regenerate(self):
        page = self.open()
        self.set(page, max_tokens=2)
        for n, text in enumerate(["One", "Two"]):
            self.say(page, text)
            self.answered(page, n + 1)
        page.evaluate("window.first = document.querySelectorAll('.assistant .stats')[1].innerText; 0")
        page.evaluate("document.querySelectorAll('[aria-label=\"Answer again\"]')[1].click()")
        page.wait("document.querySelectorAll('.assistant .stats')[1] && document.querySelectorAll('.assistant .stats')[1].innerText !== first && !document.querySelector('#send').hidden")
        self.assertEqual(self.answered(page, 2), ["One", "So.So.", "Two", "So.So."])
        page.click(".message.user [aria-label='Edit the message']")
        page.type(".message textarea", "Three")
        page.press("Escape")
        self.assertEqual(page.texts(".message .text"), ["One", "So.So.", "Two", "So.So."])
        page.click(".message.user [aria-label='Edit the message']")
        page.type(".message textarea", "Three")
        page.press("Enter")
        page.wait("document.querySelectorAll('.message').length === 2")
        self.assertEqual(self.answered(page, 1), ["Three", "So.So."])
        page.click(".message.assistant [aria-label='Edit the message']")
        page.type(".message textarea", "Said otherwise")
        page.click("[aria-label='Save the message']")
        self.assertEqual(page.texts(".message .text"), ["Three", "Said otherwise"])
        self.assertEqual(self.kept(page)[0]["messages"][1]["content"], "Said otherwise")

    def test_conversations_are_renamed_exported_imported_and_deleted(self):
        page = self.open()
        self.set(page, max_tokens=1)
        for text in ["First", "Second"]:
            page.click("#new")
            self.say(page, text)
            self.answered(page, 1)
        self.assertEqual(page.texts("#list .open"), ["Second", "First"])
        page.click("[aria-label='Rename First']")
        page.type("#list input", "Renamed <b>")
        page.press("Enter")
        self.assertEqual(page.texts("#list .open"), ["Second", "Renamed <b>"])
        page.click("[title='Renamed <b>']")
        self.assertEqual(page.texts(".message .text"), ["First", "So."])
        page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.folder), eventsEnabled=False)
        page.click("[aria-label='Export Renamed <b>']")
        page.click("#export-all")
        one, everything = self.folder / "Renamed-b.json", self.folder / "conversations.json"
        for file in [one, everything]:
            while not file.exists() or not file.read_text().endswith("}\n") and not file.read_text().endswith("]\n"):
                page.evaluate("new Promise(done => setTimeout(done, 50))")
        talk = json.loads(one.read_text())
        self.assertEqual(talk, {"messages": [{"role": "user", "content": "First"}, {"role": "assistant", "content": "So."}]})
        self.assertEqual([c["title"] for c in json.loads(everything.read_text())], ["Second", "Renamed <b>"])
        page.confirms = False
        page.click("[aria-label='Delete Second']")
        self.assertEqual(page.texts("#list .open"), ["Second", "Renamed <b>"])
        page.confirms = True
        for title in ["Second", "Renamed <b>"]:
            page.click(f"[aria-label='Delete {title}']")
        page.wait("!document.querySelector('#list li')")
        self.assertEqual(len(page.dialogs), 3)
        self.assertEqual(self.kept(page), [])
        self.assertEqual(page.texts(".message"), [])
        (self.folder / "junk.json").write_text("{")
        root = page.call("DOM.getDocument")["root"]["nodeId"]
        file = page.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        page.call("DOM.setFileInputFiles", nodeId=file, files=[str(one), str(everything), str(self.folder / "junk.json")])
        page.wait("document.querySelector('#notice').innerText === 'junk.json is no JSON.'")
        self.assertEqual(sorted(page.texts("#list .open")), ["Renamed <b>", "Renamed-b", "Second"])
        page.click("[title=Second]")
        self.assertEqual(page.texts(".message .text"), ["Second", "So."])

    def test_what_another_tab_changes_is_seen(self):
        page, other = self.open(), self.open()
        self.set(page, max_tokens=1)
        self.say(page, "Here")
        self.answered(page, 1)
        other.wait("document.querySelector('#list .open')?.innerText === 'Here'")

    def test_on_a_telephone(self):
        page = self.open(width=360, height=640, mobile=True, dark=True)
        self.set(page, max_tokens=40)
        self.say(page, "Hello " + "w" * 200)
        self.answered(page, 1)
        self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), 360)
        self.assertFalse(page.evaluate("document.querySelector('#list').checkVisibility()"))
        page.click("#menu")
        self.assertTrue(page.evaluate("document.querySelector('#list').checkVisibility()"))
        page.click("#list .open")
        self.assertFalse(page.evaluate("document.querySelector('#list').checkVisibility()"))
        lightness = "(s => s.match(/[0-9.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))"
        self.assertLess(page.evaluate(f"{lightness}(getComputedStyle(document.body).backgroundColor)"), 200)
        self.assertGreater(page.evaluate(f"{lightness}(getComputedStyle(document.body).color)"), 500)

    def test_everything_has_a_name_for_who_cannot_see_it(self):
        page = self.open()
        self.set(page, max_tokens=1)
        self.say(page, "Hello")
        self.answered(page, 1)
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        for node in nodes:
            role = node.get("role", {}).get("value")
            if not node["ignored"] and role in ("button", "textbox", "combobox", "spinbutton", "navigation", "log"):
                self.assertTrue(node.get("name", {}).get("value"), node)
        self.assertIn("log", {node.get("role", {}).get("value") for node in nodes})

    def test_a_failure_is_told_and_tried_again(self):
        page = self.open(expected=["400"])
        self.set(page, max_tokens=1)
        page.evaluate("settings.temperature = -1; 0")
        self.say(page, "Hello")
        page.wait("document.querySelector('#log .wrong')")
        self.assertIn('"temperature" must be a number', page.text("#log .wrong"))
        self.assertEqual(page.texts(".message .text"), ["Hello"])
        page.evaluate("delete settings.temperature; 0")
        page.click("[aria-label='Ask again']")
        self.assertEqual(self.answered(page, 1), ["Hello", "So."])
        self.assertIsNone(page.text("#log .wrong"))


class Texts(PageTest):
    def said(self, text, tokens=1):
        options = speaking_model(self.folder / "says.gguf", text)
        page = self.open(self.serve(self.folder / "says.gguf", *options))
        self.set(page, max_tokens=tokens)
        self.say(page, DANGEROUS)
        self.answered(page, 1)
        return page

    def test_html_of_a_model_is_text(self):
        page = self.said(DANGEROUS)
        self.assertEqual(page.texts(".message .text"), [DANGEROUS, DANGEROUS])
        page.reload()
        page.wait("document.querySelector('.message.assistant')")
        self.assertEqual(page.texts(".message .text"), [DANGEROUS, DANGEROUS])
        self.assertEqual(page.texts("#list .open"), [DANGEROUS[:60]])
        self.assertEqual(page.evaluate("document.title"), "Hearth")
        self.assertEqual(page.evaluate("document.querySelectorAll('img, #log script').length"), 0)

    def test_markdown_becomes_nodes(self):
        page = self.said(MARKDOWN)
        self.assertIn("Thought for", page.text(".assistant .thoughts summary"))
        self.assertFalse(page.evaluate("document.querySelector('.assistant .thoughts').open"))
        self.assertEqual(page.evaluate("document.querySelector('.assistant .thoughts div').textContent").strip(), "First *this*.")
        shape = page.evaluate("""(function shape(e) { return Array.from(e.children, c => c.tagName.toLowerCase() + (c.children.length ? '(' + shape(c) + ')' : '')).join(' '); })
          (document.querySelector('.assistant .text'))""")
        self.assertEqual(shape, "h2 p(strong em code) div(ul(li li(ol(li li)) li)) div(table(thead(tr(th th)) tbody(tr(td td(code))))) "
                                "div(div(span button) pre(code)) blockquote")
        self.assertEqual(page.texts(".assistant p code"), ["code **x**"])
        self.assertIn("2 * 3 * 4, [a link](http://192.0.2.1/).", page.text(".assistant p.plain"))
        self.assertEqual(page.evaluate("document.querySelector('.assistant pre').textContent"), 'print("<hello>")\n    # ```')
        self.assertEqual(page.text(".assistant .code span"), "python")
        self.assertEqual(page.texts(".assistant li li"), ["inner", "<b>inner</b>"])
        page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        page.call("Page.bringToFront")
        page.click(".assistant .code button")
        page.wait("document.querySelector('.assistant .code button').innerText === 'Copied'")
        self.assertEqual(page.evaluate("navigator.clipboard.readText()"), 'print("<hello>")\n    # ```')

    def test_a_fence_that_is_not_closed(self):
        page = self.said("```\n<b>open</b>\n")
        self.assertEqual(page.evaluate("document.querySelector('.assistant pre').textContent"), "<b>open</b>\n")


class Keys(PageTest):
    model, keys = TINY, ("secret-key", "other-key")

    def test_a_key_is_asked_for_and_kept_for_the_tab(self):
        page = self.open(expected=["401"])
        page.wait("document.querySelector('#key-dialog').open")
        page.type("#key", "wrong")
        page.press("Enter")
        page.wait("document.querySelector('#key-dialog').open && !document.querySelector('#key-wrong').hidden")
        page.type("#key", "other-key")
        page.press("Enter")
        page.wait("document.querySelector('#model').options.length === 1")
        self.set(page, max_tokens=2)
        self.say(page, "Hello")
        self.assertEqual(len(self.answered(page, 1)), 2)
        page.reload()
        page.wait("document.querySelector('#model').options.length === 1")
        self.assertEqual(page.evaluate("sessionStorage['hearth.key']"), "other-key")
        self.assertNotIn("other-key", page.evaluate("JSON.stringify(localStorage)"))


class Encoders(PageTest):
    def test_models_that_generate_are_offered(self):
        encoder = text_encoder(self.folder / "encoder")
        page = self.open(self.serve(encoder))
        page.wait("!document.querySelector('#notice').hidden")
        self.assertEqual(page.text("#notice"), "No model here generates text. encoder: embeddings and reranking only.")
        models = self.folder / "models"
        models.mkdir()
        (models / "tiny.gguf").symlink_to(TINY)
        page = self.open(self.serve(encoder, "--models", models))
        page.wait("document.querySelector('#model').options.length")
        self.assertEqual(page.evaluate("[...document.querySelector('#model').options].map(o => o.value).join()"), "tiny")


if __name__ == "__main__":
    if not CHROMIUM:
        print(SKIPPED)  # for ctest
    unittest.main()
