#!/usr/bin/env python3
"""Records docs/images/terminal.svg and docs/images/page.svg from real sessions with the default model.

    python3 tools/pictures.py HEARTH [terminal|page]

The page needs Chromium (tests/serve/browser.py)."""

import html
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs/images"
SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}\n'
COMMANDS = [
    ('hearth run default "What is the capital of Germany?"', ""),
    ("cat person.json", ""),
    ('hearth run default "Anna is 34 years old. Who is it, as JSON?" --schema person.json', ""),
    ("hearth chat default --temperature 0", "What is the capital of Germany?\nAnd of Italy?\n"),
]
GREEN, WHITE, GRAY = "#7ee787", "#e8e8e8", "#8b949e"

# Boxes and texts of a page as SVG.
PAGE_TO_SVG = r"""(() => {
  const out = [], round = v => Math.round(v * 10) / 10;
  const escape = s => s.replace(/&/g, '&amp;').replace(/</g, '&lt;');
  const color = c => { const m = c.match(/[\d.]+/g).map(Number); return m[3] === 0 ? null : '#' + m.slice(0, 3).map(v => Math.round(v).toString(16).padStart(2, '0')).join(''); };
  const text = (s, x, y, style, length) => out.push(`<text x="${round(x)}" y="${round(y)}" font-size="${parseFloat(style.fontSize)}" fill="${color(style.color)}"` +
    `${+style.fontWeight > 500 ? ' font-weight="bold"' : ''}${length ? ` textLength="${round(length)}"` : ''}>${escape(s)}</text>`);
  const line = (path, c) => out.push(`<path d="${path}" stroke="${color(c)}"/>`);
  const walk = e => {
    const s = getComputedStyle(e), r = e.getBoundingClientRect();
    if (s.display === 'none' || s.visibility === 'hidden' || r.width < 3 || r.height < 3 || s.clip !== 'auto' || s.clipPath.includes('inset(50') || e.tagName === 'DIALOG') return;
    const background = color(s.backgroundColor), [top, right, bottom] = [s.borderTopWidth, s.borderRightWidth, s.borderBottomWidth].map(parseFloat);
    const box = top && right && bottom;
    if (background || box) out.push(`<rect x="${round(r.x)}" y="${round(r.y)}" width="${round(r.width)}" height="${round(r.height)}" rx="${parseFloat(s.borderTopLeftRadius) || 0}" fill="${background || 'none'}"${box ? ` stroke="${color(s.borderTopColor)}"` : ''}/>`);
    if (!box && right) line(`M${round(r.right)} ${round(r.y)}V${round(r.bottom)}`, s.borderRightColor);
    if (!box && bottom) line(`M${round(r.x)} ${round(r.bottom)}H${round(r.right)}`, s.borderBottomColor);
    if (!box && top) line(`M${round(r.x)} ${round(r.y)}H${round(r.right)}`, s.borderTopColor);
    for (const n of e.childNodes) {
      if (n.nodeType === 1) walk(n);
      if (n.nodeType !== 3 || !n.textContent.trim()) continue;
      const range = document.createRange();
      let run = '', at = null, end = 0;
      const flush = () => { if (run.trim()) text(run.trim(), at.left, at.bottom - at.height * 0.24, s, end - at.left); run = ''; at = null; };
      for (let i = 0; i < n.length; i++) {
        range.setStart(n, i); range.setEnd(n, i + 1);
        const q = range.getClientRects()[0];
        if (!q) continue;
        if (at && Math.abs(q.top - at.top) > 4) flush();
        if (s.textOverflow === 'ellipsis' && q.right > r.right - 14) { run = run.trim() + '…'; break; }
        at = at || q;
        if (n.data[i].trim()) end = q.right;
        run += n.data[i];
      }
      flush();
    }
    const shown = e.tagName === 'SELECT' ? e.selectedOptions[0].text : e.tagName === 'TEXTAREA' ? e.value || e.placeholder : '';
    if (shown) text(shown, r.x + parseFloat(s.paddingLeft) + 1, r.y + r.height / 2 + 5, s);
  };
  walk(document.body);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${innerWidth} ${innerHeight}" font-family="sans-serif" role="img">\n<title>The web page of hearth serve</title>\n` +
    `<rect width="${innerWidth}" height="${innerHeight}" fill="${color(getComputedStyle(document.body).backgroundColor) || '#fff'}"/>\n${out.join('\n')}\n` +
    `<rect x=".5" y=".5" width="${innerWidth - 1}" height="${innerHeight - 1}" rx="6" fill="none" stroke="#999"/>\n</svg>\n`;
})()"""


def session(hearth):
    """(text, color) of the lines that a terminal shows; green ones are typed."""
    with tempfile.TemporaryDirectory() as work:
        Path(work, "person.json").write_text(SCHEMA)
        environment = {**os.environ, "PATH": f"{Path(hearth).resolve().parent}:{os.environ['PATH']}"}
        for command, typed in COMMANDS:
            done = subprocess.run(command, shell=True, cwd=work, env=environment, input=typed, capture_output=True, text=True, check=True)
            yield "$ " + command, GREEN
            answers = done.stdout.rstrip("\n").split("\n")
            if typed:
                for question, answer in zip(typed.splitlines(), answers, strict=True):
                    yield "> " + question, GREEN
                    yield answer, WHITE
                continue
            yield from ((line, WHITE) for line in answers)
            yield from ((line, GRAY) for line in done.stderr.strip().splitlines())
            yield "", WHITE


def terminal(hearth):
    lines, out, seconds, width = list(session(hearth)), [], 0.5, 8.43
    for i, (line, color) in enumerate(lines):
        y, text = 52 + 20 * i, html.escape(line, quote=False)
        if color == GREEN:
            typing = 0.035 * len(line)
            out.append(
                f'<clipPath id="c{i}"><rect x="16" y="{y - 16}" height="22" width="{width * len(line) + 6:.0f}">'
                f'<set attributeName="width" to="0" begin="0s" end="{seconds:.2f}s"/><animate attributeName="width" '
                f'from="{2 * width:.0f}" to="{width * len(line) + 6:.0f}" begin="{seconds:.2f}s" dur="{typing:.2f}s" fill="freeze"/></rect></clipPath>'
                f'<text x="16" y="{y}" fill="{color}" clip-path="url(#c{i})" textLength="{width * len(line):.0f}">{text}</text>'
            )
            seconds += typing + 0.7
        elif line:
            out.append(
                f'<text x="16" y="{y}" fill="{color}" xml:space="preserve">{text}'
                f'<set attributeName="visibility" to="hidden" begin="0s" end="{seconds:.2f}s"/></text>'
            )
            seconds += 0.25
        else:
            seconds += 1
    height = 54 + 20 * len(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" font-family="ui-monospace, DejaVu Sans Mono, Menlo, monospace" '
        f'font-size="14" role="img">\n<title>A terminal: hearth run answers, hearth run with a JSON schema, and hearth chat</title>\n'
        f'<rect width="800" height="{height}" rx="8" fill="#161b22"/>\n'
        '<circle cx="20" cy="18" r="6" fill="#ff5f56"/><circle cx="40" cy="18" r="6" fill="#ffbd2e"/><circle cx="60" cy="18" r="6" fill="#27c93f"/>\n'
        + "\n".join(out)
        + "\n</svg>\n"
    )


def page(hearth):
    sys.path.insert(0, str(ROOT / "tests/serve"))
    from browser import Browser

    server = subprocess.Popen([hearth, "serve", "default", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = next(m[0] for line in server.stdout if (m := re.search(r"http://[\d.:]+", line)))
        browser = Browser()
        try:
            tab = browser.page(address + "/", width=860, height=520)
            tab.call("Page.bringToFront")
            tab.click("#settings")
            tab.type("#settings-dialog [name=temperature]", "0")
            tab.click("#settings-dialog button.main")
            for n, question in enumerate(["What is the capital of Germany?", "And of Italy?"], 1):
                tab.type("#input", question)
                tab.press("Enter")
                tab.wait(f"document.querySelectorAll('.message.assistant').length === {n} && !document.querySelector('#send').hidden")
            time.sleep(1)  # the page scrolls
            return tab.evaluate(PAGE_TO_SVG)
        finally:
            browser.close()
    finally:
        server.terminate()
        server.wait()


def main():
    pictures = {"terminal": terminal, "page": page}
    names = sys.argv[2:] or list(pictures)
    if len(sys.argv) < 2 or not set(names) <= set(pictures):
        sys.exit("usage: tools/pictures.py HEARTH [terminal|page]")
    for name in names:
        (IMAGES / f"{name}.svg").write_text(pictures[name](sys.argv[1]))


if __name__ == "__main__":
    main()
