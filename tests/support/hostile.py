"""Names and texts that try to be more than text."""

import re

# Control sequences of terminals, and characters that reorder text there or on a page.
COMMANDS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CANARY = "window.poslabCanary=1"
HOSTILE = (
    f"<script>{CANARY}</script>",
    f"</script><script>{CANARY}</script>",
    f'"><img src=x onerror="{CANARY}">',
    f"'onfocus='{CANARY}' autofocus tabindex=0 x='",
    f"<svg/onload={CANARY}>",
    f"<style>@import 'http://127.0.0.1:9/{CANARY}';</style>",
    f"javascript:{CANARY}",
    f"[x](javascript:{CANARY})![y](http://127.0.0.1:9/z.png)",
    "../../poslab-was-here",
    "/tmp/poslab-was-here/../x",
    "\u202egnp.exe\u2066 \u200f mixed \u05d0\u05d1 12 34",
    "nul\x00 bell\x07 escape\x1b[31m tab\t line\nbreak\r\x85",
    "long " * 1000,
    "\U0001f9ea emoji \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301",
    f"&lt;script&gt;{CANARY}&lt;/script&gt; &amp;quot; &#60;b&#62;",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0, +1 -1\t\"quoted\"",
    "{{data}} {{script}} ${x} #{y} %s {0} <%= z %>",
    f"line\u2028separator\u2029 `{CANARY}` $\\frac{{ $$ \\input{{/etc/passwd}}",
    f"<!-- unclosed <![CDATA[ {CANARY} --!> <!--<script>",
    "\x1b]0;title\x07 \x1b[2J\x1b[1;31m \x9b31m \x1b]8;;http://127.0.0.1:9/\x1b\\link\x1b]8;;\x1b\\",
    "[red]markup[/red] [/] [link=file:///etc/passwd]x[/link] [bold",
    "\\write18{touch /tmp/poslab-was-here} \\immediate\\openout1=x \\csname a\\endcsname % # & _ ^ ~",
    f"<javascript:{CANARY}> <http://127.0.0.1:9/> http://127.0.0.1:9/auto",
    f"[a]: javascript:{CANARY}\n\n[a] ~~~html <b> ``` <i>",
    f"<a href='//127.0.0.1:9/'>x</a><form action=//127.0.0.1:9><input autofocus onfocus={CANARY}>",
    f"<svg><animate onbegin={CANARY} attributeName=x></svg>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    f"<iframe srcdoc='&lt;script&gt;parent.{CANARY}&lt;/script&gt;'></iframe>",
    f"<base href=http://127.0.0.1:9/><link rel=stylesheet href=x onload={CANARY}>",
    f"--></style></title></textarea><script>{CANARY}</script>",
    "%3Cscript%3E %00 %2e%2e%2f ..\\..\\ C:\\poslab-was-here",
    "{% import os %}{{ ''.__class__.__mro__ }} {0.__class__} {self} %(x)s",
    "$(touch /tmp/poslab-was-here) `touch x` ; rm -rf . && | > x",
    "NaN",
    "broken \ufffe \uffff a\u0301\u0301\u0301 \u3164 \u00ad \ufeff \U000e0041",
)
STUDY = f"..{{{{data}}}}<img src=x onerror={CANARY}>'\"&=1"
RUNS = (
    "..",
    "a..b",
    "a...",
    "hidden.",
    "-rf",
    "=1+1",
    f"<img src=x onerror={CANARY}>",
    "new\nline",
    "x" * 200,
)
